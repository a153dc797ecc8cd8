"""The function of `foreachBatch`: in which run of a query it is, how long it may take, and how it may end.

Owns what a streaming query of PySpark does not look after. Its function runs in a thread that Java calls: if it ends
that thread (`sys.exit`), nobody answers Java, and the query hangs for ever; if it never returns, nobody says so. And
Spark gives it a number that means nothing in another instance or run. Promises that a function wrapped by
`for_each_batch` ends in a return or in an error of the query, whatever it raises, and that jobs which run for longer
than the stall timeout are cancelled with a message. Python code in the driver that hangs cannot be ended: the source
then says so and gives the partitions up (`live.py`).

Concurrency: Spark calls the function of a query in one thread at a time; several queries may run in one process. The
run is known from the name of Java's thread, since its local properties may be set by the user. A query that is stopped
in the middle of a batch has its jobs cancelled and its thread interrupted, and the error comes back to Java as the text
of a traceback. Spark looks for an interruption in it with a regular expression that overflows Java's stack where the
text is long, so what is raised here is short, and says what Spark looks for.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JNetworkError

from leasehold.config import OwnershipSettings
from leasehold.errors import BatchEnded, UsageError
from leasehold.spark.plan.failures import FailureKind, sort_failure, tells_of_cancelling
from leasehold.spark.session.endings import told_since
from leasehold.spark.session.versions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

STALL = OwnershipSettings().stall_timeout
"""Seconds that a batch may take, unless the caller says otherwise: what the source waits for by default."""
_QUERY = re.compile(r"^stream execution thread .*id = ([0-9a-f-]{36}), runId = ([0-9a-f-]{36})")


def run_of(df: DataFrame) -> str:
    """The run of a query in whose function this thread is; "" elsewhere, and over Spark Connect, which does not say."""
    return _ids_of(df)[1]


def query_of(df: DataFrame) -> Any:
    """The query in whose function this thread is, as Java's object; None where `run_of` is empty."""
    query, _ = _ids_of(df)
    if not query:
        return None
    spark: Any = df.sparkSession
    jvm: Any = spark.sparkContext._jvm
    return spark._jsparkSession.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))


def _ids_of(df: DataFrame) -> tuple[str, str]:
    spark = df.sparkSession
    if is_connect(spark):
        return "", ""
    jvm: Any = spark.sparkContext._jvm
    found = _QUERY.match(str(jvm.java.lang.Thread.currentThread().getName()))
    return (found[1], found[2]) if found else ("", "")


class AppliedBatches:
    """Which batch each run of a query has applied last to each table: a second time in one run is a mistake.

    After a failure or a restart Spark gives a batch again, under another run, and the watermarks drop what is done.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], int] = {}

    def check(self, run: str, identity: str, table: str, batch: int) -> None:
        """Raise `UsageError` if this run has applied this batch to the table of this identity and name."""
        with self._lock:
            again = run and self._last.get((run, identity)) == batch
        if again:
            raise applied_already(f"batch {batch} of this query", table)

    def note(self, run: str, identity: str, batch: int) -> None:
        """The table has committed the batch."""
        if run:
            with self._lock:
                self._last[run, identity] = batch


_NOTICED = 1.0
"""Seconds in which a signal that others of the group have had reaches this process too."""

APPLIED = AppliedBatches()
"""Of this process: two objects for one table know of each other."""


def applied_already(batch: str, table: str) -> UsageError:
    """The refusal of a second `apply` of one batch to one table."""
    return UsageError(
        f"{batch} has been applied to the table {table} already: its rows count as replayed, and would be dropped. "
        "Apply all rows of a batch in one call (union them), or use a second table"
    )


def for_each_batch(
    function: Callable[[DataFrame, int], object], *, stall_timeout: float = STALL
) -> Callable[[DataFrame, int], None]:
    """The function, fit for `writeStream.foreachBatch`: it cannot end its thread, and its jobs cannot run for ever.

    A query that is stopped in the middle of a batch ends without an error, and is given it again at its next start.
    `sys.exit` and Ctrl-C in it become an error of the query, which `awaitTermination` raises. After `stall_timeout`
    seconds (default: 600, as the source's) its Spark jobs are cancelled, which is an error as well.
    """

    @functools.wraps(function)
    def safe(df: DataFrame, batch: int) -> None:
        try:
            with watched(df, batch, stall_timeout), unless_stopped(df, batch):
                function(df, batch)
        except (SystemExit, KeyboardInterrupt) as error:
            raise BatchEnded(
                f"the function of foreachBatch raised {error!r} in batch {batch}. In a thread of Spark's that ends "
                "nothing but the thread: raise an exception, or stop the query from another thread"
            ) from error

    return safe


@contextmanager
def unless_stopped(df: DataFrame, batch: int) -> Iterator[None]:
    """Around the work of a batch: where the query is stopped meanwhile, its end is told to Spark in a few words.

    It raises all the same: Spark would take a return for a batch that is done.
    """
    query = _query_or_none(df)
    try:
        yield
    except Exception as error:
        if query is None or isinstance(error, BatchEnded) or not (is_cancellation(error) and _is_stopped(query)):
            raise
        logger.info("the query was stopped in batch %d: it is given it again at its next start", batch)
        raise BatchEnded(
            f"the query was stopped in batch {batch}, and is given it again at its next start ({_AS_SPARK_KNOWS_IT})"
        ) from None


_AS_SPARK_KNOWS_IT = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling Spark: java.lang.InterruptedException"
)
"""By these words, in a text that py4j brings, Spark knows an interruption from an error (`StreamExecution.scala`)."""


def is_cancellation(error: BaseException) -> bool:
    """Whether Spark's jobs were cancelled, its threads interrupted, or Java is gone: no fault of any row."""
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return True
    try:
        return tells_of_cancelling(str(error))
    except (Py4JError, OSError):  # py4j asks Java for the text
        return True


def _query_or_none(df: DataFrame) -> Any:
    """As `query_of`, but None where a platform's own Spark does not tell."""
    try:
        return query_of(df)
    except (Py4JError, TypeError, AttributeError):
        return None


def _is_stopped(query: Any) -> bool:
    """Whether somebody has stopped the query, or Java is gone."""
    try:
        return not query.isActive()
    except (Py4JError, OSError):
        return True


@contextmanager
def watched(df: DataFrame, batch: int, stall_timeout: float) -> Iterator[None]:
    """Cancel the jobs of this thread's batch when it takes longer than that. Not over Spark Connect."""
    spark = df.sparkSession
    context: Any = None if is_connect(spark) else spark.sparkContext
    group = context and context.getLocalProperty("spark.jobGroup.id")
    if not group:
        yield
        return

    def cancel() -> None:
        logger.error("batch %d has made no progress for %g s: its jobs are cancelled", batch, stall_timeout)
        context.cancelJobGroup(group)

    timer = threading.Timer(stall_timeout, cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def say_what_cannot_be_computed(error: Exception, batch: int, before: int) -> None:
    """What there is to do about rows that cannot be computed: Spark gives the same batch again, and finds none of them.

    The transform may be in the stream's own plan, which runs as a whole: no part of it can be tried by itself. Nothing
    is said of jobs that were cancelled (a stopped query, Ctrl-C, the stall timeout), nor where the program was told to
    end since there were `before` signals: one to the whole group ends Spark's processes maybe before this one noticed.
    """
    if is_cancellation(error):
        return
    failure = sort_failure(error, computing=True)
    if failure.kind is FailureKind.COMPUTING and not told_since(before, _NOTICED):
        logger.error(
            "rows of batch %d cannot be computed: %s. Spark ends the query, and gives the same batch at each start. "
            "Guard against such events in the transform (try_cast, leasehold.spark.read_bodies), reject them with "
            "reject_by, or let `leasehold run` set them aside",
            batch,
            failure.message,
        )
