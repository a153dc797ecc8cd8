"""The jobs of a handled table: functions that Spark's tasks call, on a session of this process or over Spark Connect.

Owns the two ways to the tasks. What goes there and comes back is pickled: Leasehold's own values, between its own
processes.

    ClassicTasks   an RDD, which a session in this process's own JVM has
    ConnectTasks   Spark Connect has DataFrames alone: values and answers are in a column of bytes
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from leasehold.spark.plan.task_errors import as_data
from leasehold.spark.session.versions import is_connect, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

ASSUMED_CORES = 2
"""Tasks that run at once, where nothing tells how many."""
_VALUES = pa.schema([pa.field("number", pa.int64()), pa.field("value", pa.binary())])
_COLUMNS = "number BIGINT, value BINARY"


class HandlerTasks(Protocol):
    """The tasks of a session."""

    @property
    def cores(self) -> int:
        """How many tasks run at once, as far as it can be known."""
        ...

    def each(self, function: Callable[[T], R], values: Sequence[T]) -> list[R]:
        """What the function makes of each value, in order: a task for each."""
        ...

    def sorted_out(
        self,
        split: Callable[[T], Iterable[tuple[int, P]]],
        compute: Callable[[Iterable[tuple[int, P]]], Iterable[R]],
        values: Sequence[T],
        tasks: int,
    ) -> list[R]:
        """What `compute` makes of parts of all values: a task for each of the numbers below `tasks`.

        A task for each value makes the parts, by `split`, each with the number of the task that is to have it.
        """
        ...


def tasks_of(spark: SparkSession) -> HandlerTasks:
    """The tasks of this session."""
    return ConnectTasks(spark) if is_connect(spark) else ClassicTasks(spark)


class ClassicTasks:
    """Tasks of a session in this process's own JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @property
    def cores(self) -> int:
        return self._context.defaultParallelism

    def each(self, function: Callable[[T], R], values: Sequence[T]) -> list[R]:
        def called(value: T) -> R:
            with as_data():
                return function(value)

        return self._context.parallelize(values, len(values)).map(called).collect()

    def sorted_out(
        self,
        split: Callable[[T], Iterable[tuple[int, P]]],
        compute: Callable[[Iterable[tuple[int, P]]], Iterable[R]],
        values: Sequence[T],
        tasks: int,
    ) -> list[R]:
        def called(pieces: Iterable[tuple[int, P]]) -> Iterable[R]:
            with as_data():
                yield from compute(pieces)

        def split_up(value: T) -> Iterable[tuple[int, P]]:
            with as_data():
                yield from split(value)

        parts = self._context.parallelize(values, len(values)).flatMap(split_up)
        return parts.partitionBy(tasks, int).mapPartitions(called).collect()


def stated_cores(parallelism: str | None) -> int:
    """What `spark.default.parallelism` says, and `ASSUMED_CORES` where it says no number of at least 1.

    A client of Spark Connect can set it to any text, which the server does not check.
    """
    return int(parallelism) if parallelism and re.fullmatch("0*[1-9][0-9]{0,5}", parallelism) else ASSUMED_CORES


class ConnectTasks:
    """Tasks of a session of Spark Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def cores(self) -> int:
        return stated_cores(self._spark.conf.get("spark.default.parallelism", None))

    def each(self, function: Callable[[T], R], values: Sequence[T]) -> list[R]:
        answers = self._values(values).mapInArrow(_each(function), _COLUMNS)
        return [answer for _, answer in sorted(_read(answers), key=lambda numbered: numbered[0])]

    def sorted_out(
        self,
        split: Callable[[T], Iterable[tuple[int, P]]],
        compute: Callable[[Iterable[tuple[int, P]]], Iterable[R]],
        values: Sequence[T],
        tasks: int,
    ) -> list[R]:
        parts = self._values(values).mapInArrow(_split(split), _COLUMNS).repartition(tasks, "number")
        return [answer for _, answer in _read(parts.mapInArrow(_computed(compute), _COLUMNS))]

    def _values(self, values: Sequence[Any]) -> DataFrame:
        """The values, a task for each: ranges of so few numbers are even, since Spark looks at each of them."""
        table = pa.table([range(len(values)), [pickle.dumps(value) for value in values]], schema=_VALUES)
        return self._spark.createDataFrame(table, _COLUMNS).repartitionByRange(len(values), "number")


def _each(function: Callable[[Any], Any]) -> Any:
    def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, value in _numbered(batches):
            with as_data():
                answer = function(value)
            yield _written(number, answer)

    return called


def _split(split: Callable[[Any], Iterable[tuple[int, Any]]]) -> Any:
    def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with as_data():
            for _, value in _numbered(batches):
                for number, part in split(value):
                    yield _written(number, part)

    return called


def _computed(compute: Callable[[Iterable[tuple[int, Any]]], Iterable[Any]]) -> Any:
    """Rows of one number are in one task of Spark, which may have those of several."""

    def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: dict[int, list[tuple[int, Any]]] = {}
        for number, part in _numbered(batches):
            parts.setdefault(number, []).append((number, part))
        with as_data():
            for number, mine in parts.items():
                for answer in compute(mine):
                    yield _written(number, answer)

    return called


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    for batch in batches:
        for number, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield number, pickle.loads(value)  # noqa: S301 -- another process of Leasehold's has written it


def _written(number: int, value: Any) -> pa.RecordBatch:
    """With the classes of a handler's module, which a task has by value."""
    from pyspark import cloudpickle

    return pa.record_batch([[number], [cloudpickle.dumps(value)]], schema=_VALUES)  # type: ignore[no-untyped-call]


def _read(answers: DataFrame) -> Iterator[tuple[int, Any]]:
    return _numbered(to_arrow(answers).to_batches())
