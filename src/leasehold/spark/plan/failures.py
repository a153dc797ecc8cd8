"""What a failed batch is to be followed by: pure.

Owns the sorting of failures. What an error of ours asks for is its verdict; a task's comes as data (`task_errors.py`).
What Spark, Python or Java says of its own is known by its words. An event's own text, line breaks and all, may stand
in an error of Spark's or Python's that tells of it, and decides nothing: it comes behind the name of that error, and
what is looked for here is that name, or comes before it.

    TAKEN      another instance owns the partition now: plan the rest again, at once
    TOO_LARGE  the events weigh more than a batch may: plan again, knowing what they weigh
    GONE       events are gone: the end, or planned again without them
    AWAY       a hub, store or database is away: wait, holding on to what is held
    MEND       a person has to mend something: the end, or, in a run that has worked, as AWAY
    LOST       a worker or memory was lost: plan half as many events
    COMPUTING  an event cannot be computed: tried again, then looked for
    PERMANENT  the same would fail the same way until this process starts again: the end
    STOPPED    the loop was told to stop, and Spark ends, or the jobs of the batch were cancelled: nothing is wrong
    UNKNOWN    anything else: tried again, a few times; then only its partitions are, later
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from leasehold.backoff import Backoff
from leasehold.errors import EndWentBack, LeaseholdError, RangeTooLarge, Verdict
from leasehold.spark.plan.task_errors import error_of, is_of_ours

LONGEST_PAUSE = 30.0
"""Seconds between two tries, at most."""
_TRACEBACK = re.compile(
    r"^(?:[^\[\n]*PythonException: )?(?:\[PYTHON_EXCEPTION\] An exception was thrown from the Python worker:\s+)?"
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?P<raised>.*)",
    re.MULTILINE,
)
_QUOTING = re.compile(
    r"\[(?!SPARK_JOB_CANCELLED|OPERATION_CANCELED|STAGE_MATERIALIZATION_MULTIPLE_FAILURES)"
    r"_?[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] |"
    r"java\.lang\.(?:NumberFormat|IllegalArgument)Exception: |java\.util\.regex\.PatternSyntaxException: |"
    r"Exception Group Traceback "
)
"""Names of errors that may quote an event, such as `[CAST_INVALID_INPUT] The value 'x' …`."""
_WORKER_LOST = re.compile(
    r"ExecutorLostFailure|Python worker (?:exited unexpectedly|failed to connect)|OutOfMemoryError|"
    r"Lost task .*(?:worker lost|killed by driver)|FetchFailed|MetadataFetchFailed|No space left|"
    r"GC overhead limit|exceeded memory limits|SparkOutOfMemoryError|is bigger than spark.driver.maxResultSize|"
    r"Worker .* lost|java\.io\.EOFException"
)
_CAUSED_BY = re.compile(r"^Caused by: (?:org\.apache\.spark\.[\w.]+: )?")
_NO_SPACE = re.compile(r"OSError: \[Errno 28\]")
_NOT_INSTALLED = re.compile(
    r"ModuleNotFoundError: No module named '(leasehold|pyarrow)['.]|[\w.]+: \[PACKAGE_NOT_INSTALLED\] (\w+)"
)
_CANCELLED = re.compile(
    r"\b(?:SPARK_JOB_CANCELLED|OPERATION_CANCELED)\b|\bJob \d+ cancelled\b|"
    r"\bInterruptedException\b|\bClosedByInterruptException\b|"
    r"\bSparkContext (?:was shut down|has been shutdown)|stopped SparkContext"
)


class FailureKind(StrEnum):
    """What to do about a failure."""

    TAKEN = "taken"
    TOO_LARGE = "too large"
    GONE = "gone"
    AWAY = "away"
    MEND = "mend"
    LOST = "lost"
    COMPUTING = "computing"
    PERMANENT = "permanent"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


_OF_OURS = {
    Verdict.PASSES: FailureKind.AWAY,
    Verdict.MEND: FailureKind.MEND,
    Verdict.RESTART: FailureKind.PERMANENT,
    Verdict.ROWS: FailureKind.UNKNOWN,
    Verdict.TAKEN: FailureKind.TAKEN,
    Verdict.GONE: FailureKind.GONE,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A batch's failure: its kind, one line for people, and what it says of a partition."""

    kind: FailureKind
    message: str
    partition: str = ""
    owner_level: int = 0
    mean_bytes: float = 0.0


def sort_failure(error: BaseException, *, computing: bool = False) -> Failure:
    """Judge a failure. `computing`: it comes from evaluating rows, so what is not ours is the rows' or the user's.

    But a job that was cancelled, by a watch or in Spark's UI, says nothing of its rows.
    """
    if isinstance(error, LeaseholdError):
        return _of_ours(error)
    text = str(error)
    said_of_itself, raised = _without_events(text)
    if is_of_ours(raised):
        ours = error_of(raised)
        return Failure(FailureKind.UNKNOWN, _reason(text)) if ours is None else _of_ours(ours)
    if missing := _NOT_INSTALLED.match(raised):
        return Failure(
            FailureKind.PERMANENT,
            f"the Python of Spark's workers has no {missing[1] or missing[2]}. Install it there, or name a Python that "
            "has it: spark.pyspark.python, or the environment variable PYSPARK_PYTHON",
        )
    first_line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if isinstance(error, MemoryError) or _WORKER_LOST.search(said_of_itself) or _NO_SPACE.match(raised):
        return Failure(FailureKind.LOST, _reason(text) or _line_of(_WORKER_LOST, text) or first_line)
    said = _reason(text) or f"{type(error).__name__}: {first_line}"
    of_rows = computing and not _CANCELLED.search(said_of_itself)
    return Failure(FailureKind.COMPUTING if of_rows else FailureKind.UNKNOWN, said)


def tells_of_cancelling(text: str) -> bool:
    """Whether an error's text says that jobs were cancelled, or threads interrupted, which is no fault of any row."""
    return _CANCELLED.search(_without_events(text)[0]) is not None


def _without_events(text: str) -> tuple[str, str]:
    """What an error's text says before any event's text can come; and the error that a Python task raised, or "".

    Of a chain of Python's errors that is the first: ours has none before it.
    """
    quoting, traceback = _QUOTING.search(text), _TRACEBACK.search(text)
    if traceback is None or (quoting is not None and quoting.start() < traceback.start()):
        return (text if quoting is None else text[: quoting.start()]), ""
    return text[: traceback.start()], traceback["raised"]


def _of_ours(error: LeaseholdError) -> Failure:
    message = str(error)
    if isinstance(error, RangeTooLarge):
        return Failure(FailureKind.TOO_LARGE, message, error.partition, mean_bytes=error.size / max(1, error.events))
    if isinstance(error, EndWentBack):  # planned again, events that come meanwhile would be passed by
        return Failure(FailureKind.PERMANENT, message, error.partition)
    kind = _OF_OURS[error.verdict]
    if kind is not FailureKind.TAKEN:
        return Failure(kind, message)
    partition, level = getattr(error, "partition", ""), getattr(error, "owner_level", None)
    if not partition or level is None:  # nobody knows what to plan without
        return Failure(FailureKind.UNKNOWN, message)
    return Failure(kind, message, partition, level)


def _line_of(pattern: re.Pattern[str], text: str) -> str:
    """The first line that says so, without the names of Java's exceptions before it."""
    found = next((line for line in text.splitlines() if pattern.search(line)), "")
    return re.sub(r"^\s*(?:Caused by: )?(?:[\w.$]+(?:Exception|Error): )*", "", found)


def _reason(text: str) -> str:
    """The last line of a Python traceback in Spark's text, or its error class with the first sentence.

    Where it has neither, the innermost cause in Java.
    """
    lines = [line.strip() for line in text.splitlines()]
    raised = [line for line in lines if re.match(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b", line)]
    if "Traceback (most recent call last)" in text and raised:
        return raised[0] if len(raised) == 1 else _innermost(lines) or raised[-1]
    causes = [_CAUSED_BY.sub("", line) for line in lines if _CAUSED_BY.match(line)]
    classes = [line for line in [*lines, *causes] if re.match(r"^(?:[\w.]+: )?\[[A-Z0-9_.]+\]", line)]
    return classes[0] if classes else causes[-1] if causes else ""


def _innermost(lines: list[str]) -> str:
    """The line after the first traceback's last frame: what the task raised."""
    inside = False
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and re.match(r"^[A-Za-z_][\w.]*(?:: .*)?$", line) and not line.startswith(("File ", "raise ")):
            return line
    return ""


pause_before_retry = Backoff(0.5, LONGEST_PAUSE).pause
"""Seconds to wait after this many failures in a row; chance spreads instances."""
