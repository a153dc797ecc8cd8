"""The rules of the loop that need no Spark: shares, weights, orders, failures, poison."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import (
    CheckpointStepBack,
    ConfigError,
    DataLoss,
    EndWentBack,
    HubError,
    HubUnavailable,
    LeaseholdError,
    LeaseLost,
    MissingDependency,
    NotTheOwner,
    PartitionTaken,
    RangeTooLarge,
    ReaderDisconnected,
    SinkError,
    SinkUnavailable,
    StaleBatch,
    StoreUnavailable,
    Verdict,
)
from leasehold.handlers.contract import HandlerFailed, RowsRefused
from leasehold.model import EventRange
from leasehold.spark.loop.driver_reads import ReadCancelled
from leasehold.spark.loop.orders import Order, Receipt, check_receipts, describe, task_order
from leasehold.spark.loop.pace import GATHERING, MANY, Pace
from leasehold.spark.loop.poison import FEW, TooMuchPoison, allowed, halves, sift
from leasehold.spark.plan.failures import FailureKind, pause_before_retry, sort_failure, tells_of_cancelling
from leasehold.spark.plan.offsets import ReadRange, Weights, next_waited, share
from leasehold.spark.plan.task_errors import TaskError, as_data, error_of
from leasehold.spark.table.of_loop import batch_id
from leasehold_testkit.clock import ManualClock

# Shares


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 50), max_size=8),
    st.integers(1, 60),
    st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 5)),
)
def test_a_share_gives_all_that_fits(available: dict[str, int], limit: int, waited: dict[str, int]) -> None:
    granted = share(limit, available, waited)
    assert sum(granted.values()) == min(limit, sum(available.values()))
    assert all(0 <= granted[partition] <= there for partition, there in available.items())


def test_nobody_waits_for_ever_whatever_comes_elsewhere() -> None:
    waited: dict[str, int] = {}
    longest = 0
    for _ in range(200):
        available = {"big": 10_000, "a": 1, "b": 1, "c": 3}  # each time anew
        granted = share(2, available, waited)
        waited = next_waited(granted, available, waited)
        longest = max(longest, *waited.values(), 0)
    assert longest <= 2


def test_a_batch_is_cut_to_its_weight_and_each_partition_gets_its_turn() -> None:
    weights = Weights(1_000_000, {"0": 100_000.0, "1": 10.0})
    assert weights.fit({"0": 5, "1": 100}) == {"0": 5, "1": 100}
    cut = weights.fit({"0": 100, "1": 100})
    assert cut["0"] * 100_000 + cut["1"] * 10 <= 1_000_000
    assert min(cut.values()) >= 1
    # Events of 10 MB each: one at a time, the one that has waited longest first.
    huge = Weights(1_000_000, {"0": 1e7, "1": 1e7, "2": 1e7})
    waited: dict[str, int] = {}
    seen = []
    for _ in range(6):
        granted = huge.fit({"0": 10, "1": 10, "2": 10}, waited)
        seen.append([partition for partition, count in granted.items() if count])
        waited = next_waited(granted, {"0": 10, "1": 10, "2": 10}, waited)
    assert [len(each) for each in seen] == [1] * 6
    assert {each[0] for each in seen[:3]} == {"0", "1", "2"}


# Orders


def ranges(*spans: tuple[str, int, int]) -> tuple[EventRange, ...]:
    return tuple(EventRange("h", partition, 3, begin, end) for partition, begin, end in spans)


def test_an_order_reaches_its_tasks_and_its_receipts_are_all_asked_for() -> None:
    tasks = ((ReadRange("0", 1, 5, 3),), (ReadRange("0", 5, 9, 3), ReadRange("1", 0, 2, 3)))
    order = Order("h", ranges(("0", 1, 9), ("1", 0, 2)), tasks, 1000, {"0": 12.6})
    second = task_order(order.text(), 1)
    assert (second.token, second.ranges, second.most_bytes, second.mean) == (order.token, tasks[1], 1000, {"0": 13})
    told = [Receipt(order.token, number, {"0": 4}, {"0": 40}) for number in (0, 1)]
    assert set(check_receipts(order, [*told, told[0]])) == {0, 1}, "an attempt that came twice counts once"
    with pytest.raises(StaleBatch, match="1 of the 2 tasks"):
        check_receipts(order, told[:1])
    with pytest.raises(StaleBatch, match="2 of the 2 tasks"):
        check_receipts(Order("h", order.ranges, tasks), told)  # another try of the same batch


def test_a_batch_has_one_name_everywhere() -> None:
    one, other = ranges(("0", 1, 9), ("1", 0, 2)), ranges(("1", 0, 2), ("0", 1, 9))
    assert batch_id(one) == batch_id(other)
    assert batch_id(one) != batch_id(ranges(("0", 1, 9), ("1", 0, 3)))
    assert describe(other) == "partition 0 [1, 9), partition 1 [0, 2)"


# Failures

CALL = "An error occurred while calling o9.getResult.\n: org.apache.spark.SparkException: "
ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 1.0 (TID 1) (192.0.2.2 executor driver): "
)
FRAME = 'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    raise the(error)\n    ^^^^^^^^^^^^^^^^\n'
TASK = f"{CALL}{ABORTED}org.apache.spark.api.python.PythonException: {FRAME}{{}}\n\n\tat org.apache.spark.X\n"
LINE = f"{TaskError.__module__}.{TaskError.__name__}: {TaskError(PartitionTaken('3', 7))}"
"""As a log of Leasehold has it, and so an event may."""
CHAIN = f"{FRAME}KafkaError: slow\n\nThe above exception was the direct cause of the following exception:\n\n{FRAME}"


def raised_in_a_task(error: LeaseholdError) -> str:
    """The line of a traceback that names it."""
    with pytest.raises(TaskError) as raised, as_data():
        raise error
    assert (raised.value.__cause__, raised.value.__suppress_context__) == (None, True), "its traceback stays there"
    return f"{TaskError.__module__}.{TaskError.__name__}: {raised.value}"


class Undone(StoreUnavailable):
    """As a store has one of its own."""


class Numbered(SinkError):
    """One that is made of something else than a text."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"number {number}")


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("hub", None, "is missing"),
        ConfigError("a", {1}, "no set", "Write a list"),
        MissingDependency("the store", "redis"),
        DataLoss("3", 10, 20, "", ["5", "7"]),
        EndWentBack("3", 20, 10),
        ReaderDisconnected("3", 4, 17),
        LeaseLost("s", "a\nb", 7, "late"),
        SinkError('line\nbreak and "quotes" é'),
        StoreUnavailable("no right", verdict=Verdict.MEND),
        Undone("by others"),
        Numbered(7),
    ],
    ids=repr,
)
def test_an_error_is_made_anew_where_a_task_has_raised_it(error: LeaseholdError) -> None:
    line = raised_in_a_task(error)
    assert "\n" not in line
    again = error_of(line)
    assert again is not None
    assert (again.verdict, str(again).replace("'{1}'", "{1}")) == (error.verdict, str(error))
    assert isinstance(error, type(again))
    if isinstance(error, ReaderDisconnected | DataLoss):
        assert vars(again) == vars(error)


def test_a_line_of_another_version_or_a_spoiled_one_is_an_unknown_failure() -> None:
    line = raised_in_a_task(PartitionTaken("3", 7))
    for spoiled in (
        line.replace('"version": 1', '"version": 2'),
        line.replace("PartitionTaken", "NoSuchError"),
        line.replace("PartitionTaken", "Sequence"),
        line.replace('"taken"', '"something"'),
        line.replace('["3", 7]', '["3"]'),
        line.replace('["3", 7]', '"3"'),
        line[:-1],
        line[:60],
        line.replace("{", "[", 1),
        line.replace(": leasehold-error", ": another-error"),
        line.replace('["3", 7]', '["3", "7"]'),
        line.replace('["3", 7]', "[3, 7]"),
        raised_in_a_task(RangeTooLarge("3", 10, 5_000, 1_000)).replace("10,", '"ten",'),
    ):
        assert spoiled != line
        assert error_of(spoiled) is None
        assert sort_failure(RuntimeError(TASK.format(spoiled)), computing=True).kind is FailureKind.UNKNOWN
    assert error_of(line.replace("task_errors", "other_errors")) is None
    assert sort_failure(RangeTooLarge("3", 0, 5_000, 1_000)).kind is FailureKind.TOO_LARGE


@pytest.mark.parametrize(
    "error", [NotTheOwner("lost"), LeaseLost("s", "a", 7, "late"), CheckpointStepBack("3", 5, 9)], ids=repr
)
def test_what_was_taken_and_names_no_partition_and_level_is_an_unknown_failure(error: LeaseholdError) -> None:
    """Planned again at once, it came again at once."""
    failure = sort_failure(error)
    assert (failure.kind, failure.message) == (FailureKind.UNKNOWN, str(error))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PartitionTaken("3", 7), FailureKind.TAKEN),
        (RangeTooLarge("3", 10, 5_000, 1_000), FailureKind.TOO_LARGE),
        (DataLoss("3", 0, 5), FailureKind.GONE),
        (EndWentBack("3", 20, 10), FailureKind.PERMANENT),
        (HubUnavailable("the hub is away"), FailureKind.AWAY),
        (SinkUnavailable("locked"), FailureKind.AWAY),
        (SinkUnavailable("wrong password", verdict=Verdict.MEND), FailureKind.MEND),
        (SinkError("permission denied"), FailureKind.MEND),
        (HubError("damaged"), FailureKind.UNKNOWN),
        (StaleBatch("old rows"), FailureKind.PERMANENT),
        (HandlerFailed("the handler raised for event 7"), FailureKind.UNKNOWN),
        (RowsRefused("no such row"), FailureKind.UNKNOWN),
        (ReadCancelled("cancelled before it was read"), FailureKind.UNKNOWN),
    ],
)
def test_errors_of_ours_are_known_also_in_the_text_of_a_task(error: LeaseholdError, kind: FailureKind) -> None:
    text = TASK.format(raised_in_a_task(error))
    here, there = sort_failure(error, computing=True), sort_failure(RuntimeError(text), computing=True)
    assert here == there
    assert (here.kind, here.message) == (kind, str(error))
    if kind in (FailureKind.TAKEN, FailureKind.TOO_LARGE):
        assert here.partition == "3"
    assert sort_failure(PartitionTaken("3", 7)).owner_level == 7
    assert sort_failure(RangeTooLarge("3", 10, 5_000, 1_000)).mean_bytes == 500


def test_what_a_user_s_function_raises_is_told_from_a_lost_worker() -> None:
    raised = RuntimeError(TASK.format("ValueError: no such tail number"))
    assert sort_failure(raised, computing=True).kind is FailureKind.COMPUTING
    assert sort_failure(raised).kind is FailureKind.UNKNOWN
    assert "no such tail number" in sort_failure(raised, computing=True).message
    for text in ("java.lang.OutOfMemoryError: Java heap space", "Python worker exited unexpectedly (crashed)"):
        assert sort_failure(RuntimeError(text), computing=True).kind is FailureKind.LOST
    assert sort_failure(MemoryError(), computing=True).kind is FailureKind.LOST
    there = sort_failure(RuntimeError(TASK.format("ModuleNotFoundError: No module named 'leasehold'")), computing=True)
    assert there.kind is FailureKind.PERMANENT
    assert "PYSPARK_PYTHON" in there.message
    own = RuntimeError(TASK.format("ModuleNotFoundError: No module named 'leasehold_of_mine'"))
    assert sort_failure(own, computing=True).kind is FailureKind.COMPUTING
    assert pause_before_retry(1, 1.0) == 0.25
    assert pause_before_retry(50, 0.0) == 30.0


def test_a_lost_batch_s_message_names_the_cause() -> None:
    text = (
        "An error occurred while calling o99.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
        "awaitResult: \n\tat org.apache.spark.util.X\nCaused by: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Total size of serialized results of 1 tasks (1183.7 KiB) is bigger than "
        "spark.driver.maxResultSize (1024.0 KiB)\n\tat org.apache.spark.util.Y"
    )
    said = sort_failure(RuntimeError(text), computing=True).message
    assert said.startswith("Job aborted due to stage failure: Total size")
    assert said.endswith("spark.driver.maxResultSize (1024.0 KiB)")


@pytest.mark.parametrize(
    ("caused", "said"),
    [
        (
            ["org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.X] Malformed.", "java.io.IOException: odd"],
            "[MALFORMED_RECORD_IN_PARSING.X] Malformed.",
        ),
        (
            ["org.apache.spark.SparkException: Job aborted", 'java.lang.NumberFormatException: For input string: "x"'],
            'java.lang.NumberFormatException: For input string: "x"',
        ),
    ],
)
def test_a_failure_in_java_is_told_by_its_cause(caused: list[str], said: str) -> None:
    head = "An error occurred while calling o9.getResult.\n: org.apache.spark.SparkException: Exception thrown:\n\tat Y"
    text = "\nCaused by: ".join([head, *(f"{one}\n\tat org.X" for one in caused)])
    assert sort_failure(RuntimeError(text), computing=True).message == said


@pytest.mark.parametrize(
    "text",
    [
        "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group 4bfe00b6. SQLSTATE: XXKDA",
        "Job 3 cancelled as part of cancellation of all jobs",
        "An error occurred while calling o44.count.\n: java.lang.InterruptedException\n\tat java.base",
        "org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down",
    ],
)
def test_what_was_cancelled_is_told_from_what_failed(text: str) -> None:
    assert tells_of_cancelling(text)
    assert not tells_of_cancelling("[CAST_INVALID_INPUT] The value 'oops' of the type STRING cannot be cast to INT")


@pytest.mark.parametrize(
    "text",
    [
        "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group 4bfe00b6. SQLSTATE: XXKDA",
        "An error occurred while calling o9.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
        "awaitResult: \n\tat X\nCaused by: org.apache.spark.SparkException: Job 8 cancelled part of cancelled job",
        "An error occurred while calling o9.count.\n: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 8",
        "[STAGE_MATERIALIZATION_MULTIPLE_FAILURES] Multiple failures (2) in stage materialization:\n"
        " 1. SparkException: [SPARK_JOB_CANCELLED] Job 8 cancelled part of cancelled job group",
        "[OPERATION_CANCELED] Operation has been canceled. SQLSTATE: HY008",
    ],
)
def test_a_job_that_was_cancelled_says_nothing_of_its_rows(text: str) -> None:
    assert sort_failure(RuntimeError(text), computing=True).kind is FailureKind.UNKNOWN


@pytest.mark.parametrize(
    "said",
    [
        "Job 3 cancelled",
        "[SPARK_JOB_CANCELLED] Job 3 cancelled",
        ": org.apache.spark.SparkException: Job 3 cancelled",
        "java.lang.InterruptedException",
        "java.lang.OutOfMemoryError: Java heap space",
        "ExecutorLostFailure (executor 1 exited)",
        "OSError: [Errno 28] No space left on device",
        LINE,
        "ModuleNotFoundError: No module named 'leasehold'",
        f"{FRAME}{LINE}",
        f"{CHAIN}{LINE}",
        f"{CHAIN}OSError: [Errno 28] No space left on device",
    ],
)
@pytest.mark.parametrize("before", ["", "a log of\n", "\n\n"])
def test_an_event_may_say_what_it_likes(before: str, said: str) -> None:
    cast = f"[CAST_INVALID_INPUT] The value '{before}{said}' of the type STRING cannot be cast to INT. SQLSTATE: 22018"
    for text in (
        cast,
        f"{CALL}{ABORTED}org.apache.spark.SparkNumberFormatException: {cast}\n\tat org.apache.spark.X\n",
        f"An exception was thrown from the Python worker:\n{FRAME}ValueError: bad body: {before}{said}",
        TASK.format(f"ValueError: bad body: {before}{said}"),
        f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {FRAME}ValueError: {before}{said}",
        f"[INVALID_URL] The url is invalid: {said}",
        f"{CALL}{ABORTED}org.apache.spark.SparkRuntimeException: [_LEGACY_ERROR_TEMP_2000] {before}{said}",
        f'{CALL}{ABORTED}java.lang.NumberFormatException: For input string: "{before}{said}"',
        f"{CALL}{ABORTED}java.util.regex.PatternSyntaxException: Unclosed group near index 9\n{said}",
        f"An exception was thrown from the Python worker:\n  + Exception Group {FRAME}  | ValueError: {before}{said}",
    ):
        assert sort_failure(RuntimeError(text), computing=True).kind is FailureKind.COMPUTING, text
        assert not tells_of_cancelling(text)


@pytest.mark.parametrize(
    "before",
    [
        f"An exception was thrown from the Python worker:\n{FRAME}",
        f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {FRAME}",
        f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker:\n{FRAME}",
        f"{CALL}{ABORTED}org.apache.spark.api.python.PythonException: {FRAME}",
    ],
)
def test_an_error_of_ours_is_found_wherever_spark_has_it(before: str) -> None:
    text = f"{before}{raised_in_a_task(HubUnavailable('the hub is away'))}\n\n\tat org.apache.spark.X"
    assert sort_failure(RuntimeError(text), computing=True).kind is FailureKind.AWAY


# Poison


class Events:
    """Events of which some cannot be computed, and what was computed of them."""

    def __init__(self, bad: set[tuple[str, int]]) -> None:
        self.bad = bad
        self.calls = 0

    def compute(self, some: Sequence[EventRange]) -> list[tuple[str, int]]:
        self.calls += 1
        events = [(one.partition, number) for one in some for number in range(one.begin, one.end)]
        if found := self.bad & set(events):
            raise ValueError(f"{min(found)} is bad")
        return events


def why(error: Exception) -> str | None:
    return str(error) if isinstance(error, ValueError) else None


@given(st.integers(2, 3000), st.integers(0, 2**32))
def test_exactly_the_events_that_fail_are_found(count: int, seed: int) -> None:
    rng = Random(seed)
    whole = ranges(("0", 5, 5 + count), ("1", 0, rng.randrange(1, 50)))
    everything = [(one.partition, number) for one in whole for number in range(one.begin, one.end)]
    bad = set(rng.sample(everything, rng.randrange(0, min(allowed(len(everything), 100), len(everything) - 1) + 1)))
    events = Events(bad)
    sifted = sift(whole, events.compute, why, most=100, witness=lambda: True)
    assert {(one.event.partition, one.event.begin) for one in sifted.poison} == bad
    assert sorted(event for piece in sifted.good for event in piece) == sorted(set(everything) - bad)


def test_too_many_are_an_outage() -> None:
    whole = ranges(("0", 0, 1000))
    with pytest.raises(TooMuchPoison, match="11 of 1000 events"):
        sift(whole, Events({("0", n) for n in range(0, 1000, 7)}).compute, why, most=100, witness=lambda: True)
    # All of a small batch: what was computed before decides.
    few = Events({("0", n) for n in range(FEW)})
    assert len(sift(ranges(("0", 0, FEW)), few.compute, why, most=100, witness=lambda: True).poison) == FEW
    with pytest.raises(TooMuchPoison):
        sift(ranges(("0", 0, FEW)), few.compute, why, most=100, witness=lambda: False)


def test_another_failure_than_the_events_own_ends_the_search() -> None:
    def away(some: Sequence[EventRange]) -> None:
        raise HubUnavailable("the hub is away")

    with pytest.raises(HubUnavailable):
        sift(ranges(("0", 0, 8)), away, why, most=100, witness=lambda: True)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=5))
def test_halves_are_all_of_it_and_no_more(spans: list[tuple[int, int]]) -> None:
    whole = ranges(*((str(place), begin, begin + length) for place, (begin, length) in enumerate(spans)))
    parts = halves(whole)
    numbers = [(one.partition, number) for part in parts for one in part for number in range(one.begin, one.end)]
    assert sorted(numbers) == [(one.partition, number) for one in whole for number in range(one.begin, one.end)]
    if sum(map(len, whole)) > 1:
        assert abs(sum(map(len, parts[0])) - sum(map(len, parts[1]))) <= 1


# Looks


def looked(pace: Pace, clock: ManualClock, events: Sequence[int], *, every: float = 0.01) -> list[bool]:
    """What a pace says of what these looks find, one after the other."""
    said = []
    for found in events:
        said.append(pace.gathers(found))
        clock.advance(every)
    return said


def test_what_has_just_begun_to_come_is_looked_at_until_no_more_comes() -> None:
    clock = ManualClock()
    pace = Pace(clock)
    assert looked(pace, clock, [100]) == [False], "events that were there at once are many: no pause, no waiting"
    pace.pause(away=False)
    assert looked(pace, clock, [250, 500, 500]) == [True, True, False]
    pace = Pace(clock)
    pace.pause(away=False)
    assert looked(pace, clock, range(100, 1000, 100)).index(False) * 0.01 == pytest.approx(GATHERING, abs=0.011)
    pace = Pace(clock)
    pace.pause(away=False)
    assert looked(pace, clock, [MANY]) == [False]


def test_fewer_than_usual_have_just_begun_to_come_too() -> None:
    clock = ManualClock()
    pace = Pace(clock)
    for found in (2_000, 300):
        pace.begun(found)
    assert not pace.gathers(2_000), "a steady stream does not wait"
    assert pace.gathers(1_200)
    pace.pause(away=False)
    clock.advance(0.01)
    assert looked(pace, clock, [2_000, 2_000]) == [True, False]
    for _ in range(20):
        pace.begun(10)
    assert not pace.gathers(10), "what is usual is what came lately"


def test_where_a_look_is_dear_nothing_is_looked_at_twice() -> None:
    clock = ManualClock()
    pace = Pace(clock)
    with pace.looking():
        clock.advance(0.3)
    pace.pause(away=False)
    assert not pace.gathers(100)
