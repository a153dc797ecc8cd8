"""Errors: one tree, each fit to travel between processes, messages that read well."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import errors
from leasehold.errors import (
    AlreadyInUse,
    CheckpointStepBack,
    ConfigError,
    DataLoss,
    EndWentBack,
    HubError,
    LeaseBusy,
    LeaseholdError,
    LeaseLost,
    MissingDependency,
    NotTheOwner,
    OwnerLevelSuperseded,
    PartitionTaken,
    RangeTooLarge,
    ReaderDisconnected,
    SinkError,
    SinkUnavailable,
    SparkEnded,
    StoreUnavailable,
    UsageError,
    Verdict,
    is_waited_out,
    verdict_of,
)
from leasehold.installation import command_for

SAMPLES: tuple[LeaseholdError, ...] = (
    ConfigError("margin", -1.0, "a duration of zero or more", "Give a number of seconds"),
    ConfigError("hub", None, "is missing"),
    MissingDependency("the store redis://***@h", "redis"),
    DataLoss("3", 10, 20),
    DataLoss("3", 10, 20, "Read from earliest."),
    OwnerLevelSuperseded("3", 4, 5),
    CheckpointStepBack("3", 9, 10),
    ReaderDisconnected("3", 4, 17),
    PartitionTaken("3", 4),
    EndWentBack("3", 20, 10),
    RangeTooLarge("3", 10, 70_000, 65_536),
    SparkEnded(),
    LeaseBusy("billing", "order-42", "billing-2", 12.5, 10.0),
    LeaseBusy("billing", "order-42", "billing-2", None, 10.0),
    LeaseLost("billing", "order-42", 7, "it was not renewed in time"),
    ConfigError("hub", "log://x.db", "a log URL is log:///relative/path", "Did you mean log:///x.db?"),
    DataLoss("3", 10, 20, "", ["5", "7"]),
)
CLASSES = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, LeaseholdError)]


@pytest.mark.parametrize("error", SAMPLES, ids=str)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_and_back(error: LeaseholdError, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 -- what was pickled a moment ago
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_with_a_constructor_of_its_own_is_among_the_samples(kind: type[LeaseholdError]) -> None:
    if "__init__" in vars(kind) and kind is not LeaseholdError:
        assert kind in {type(error) for error in SAMPLES}
    else:
        again = pickle.loads(pickle.dumps(kind("what happened")))  # noqa: S301 -- what was pickled a moment ago
        assert (type(again), str(again)) == (kind, "what happened")


@pytest.mark.parametrize("error", SAMPLES, ids=str)
def test_no_doubled_punctuation(error: LeaseholdError) -> None:
    assert not re.search(r"[.,:;]{2}|\.\s*\.|\s[.,:;]|\s\s|[.:]$\s", str(error)), str(error)
    assert "None" not in str(error)


def test_what_a_config_error_says() -> None:
    assert str(SAMPLES[0]) == "margin = -1.0: a duration of zero or more. Give a number of seconds."
    assert str(SAMPLES[1]) == "hub: is missing."


@pytest.mark.parametrize(
    ("rule", "remedy", "said"),
    [
        ("above zero", "", "n = 0: above zero."),
        ("above zero.", "", "n = 0: above zero."),
        ("above zero", "Give one", "n = 0: above zero. Give one."),
        ("above zero.", "Give one.", "n = 0: above zero. Give one."),
        ("above zero", "Give one!", "n = 0: above zero. Give one!"),
        ("not an option", "Did you mean m?", "n = 0: not an option. Did you mean m?"),
        ("is it above zero?", "Give one", "n = 0: is it above zero? Give one."),
        ("above zero", 'For example "10s"', 'n = 0: above zero. For example "10s".'),
        ("above zero", "Give 1.5", "n = 0: above zero. Give 1.5."),
    ],
)
def test_a_config_error_ends_each_sentence_once(rule: str, remedy: str, said: str) -> None:
    error = ConfigError("n", 0, rule, remedy)
    assert str(error) == said
    assert (error.rule, error.remedy) == (rule, remedy), "as given"


PHRASES = st.text("ab 1", min_size=1).map(str.strip).filter(bool)
MARKS = st.sampled_from(["", ".", "?", "!"])


@given(PHRASES, MARKS, st.just("") | PHRASES, MARKS)
def test_each_part_of_a_config_error_has_one_mark_at_its_end(rule: str, mark: str, remedy: str, end: str) -> None:
    said = str(ConfigError("n", 0, rule + mark, remedy and remedy + end))
    expected = f"n = 0: {rule}{mark or '.'}"
    assert said == (f"{expected} {remedy}{end or '.'}" if remedy else expected)


def test_what_the_others_say() -> None:
    assert command_for("redis") in str(SAMPLES[2])
    assert "[10, 20)" in str(SAMPLES[3])
    assert "failOnDataLoss=false" in str(SAMPLES[3])
    many = str(DataLoss("3", 10, 20, "", [str(number) for number in range(10, 25)]))
    assert "Events are gone of partition 10, 11, 12, 13, 14, 15, 16, 17 and 7 more, too. Set" in many
    assert str(SAMPLES[4]).endswith("(retention). Read from earliest.")
    assert "level 4" in str(SAMPLES[5])
    assert "level 5" in str(SAMPLES[5])
    assert "sequence number 9" in str(SAMPLES[6])


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_in_the_drawn_tree_under_its_base(kind: type[LeaseholdError]) -> None:
    assert errors.__doc__
    lines = errors.__doc__.splitlines()
    depths = {match[2]: len(match[1]) for line in lines if (match := re.match(r"^(\s{4}[\s│├└─]*)([A-Z]\w+)\b", line))}
    order = list(depths)
    assert kind.__name__ in depths
    above = [name for name in order[: order.index(kind.__name__)] if depths[name] < depths[kind.__name__]]
    base = max(above, key=lambda name: (depths[name], order.index(name)), default="Exception")
    assert kind.__bases__[0].__name__ == base
    assert kind.__doc__


def test_what_each_error_asks_for() -> None:
    for kind in CLASSES:
        passes = kind.__name__.endswith("Unavailable") or kind is LeaseBusy
        assert (kind.verdict is Verdict.PASSES) == passes, kind
        assert (kind.verdict is Verdict.TAKEN) == (issubclass(kind, NotTheOwner) or kind is LeaseLost), kind
        assert kind.verdict is Verdict.RESTART or not issubclass(kind, UsageError), kind
    assert {kind for kind in CLASSES if kind.verdict is Verdict.GONE} == {DataLoss, EndWentBack}
    assert verdict_of(OSError()) is None


def test_who_knows_better_gives_a_verdict_with_the_error() -> None:
    error = SinkUnavailable("wrong password", verdict=Verdict.MEND)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 -- what was pickled a moment ago
    assert (again.verdict, str(again)) == (Verdict.MEND, "wrong password")
    assert SinkUnavailable("away").verdict is Verdict.PASSES
    for sample in SAMPLES:
        assert pickle.loads(pickle.dumps(sample)).verdict is type(sample).verdict  # noqa: S301 -- as above
        mended = copy.copy(sample)
        mended.verdict = Verdict.MEND
        for again in (pickle.loads(pickle.dumps(mended)), copy.copy(mended)):  # noqa: S301 -- as above
            assert (again.verdict, str(again)) == (Verdict.MEND, str(sample))


def test_what_is_waited_out() -> None:
    for worked in (True, False):
        assert is_waited_out(StoreUnavailable("x"), worked=worked)
        assert is_waited_out(SinkError("x"), worked=worked) is worked
        for error in (HubError("x"), ConfigError("x", 1, "y"), PartitionTaken("3", 4), DataLoss("3", 0, 1), OSError()):
            assert not is_waited_out(error, worked=worked)


def test_you_and_lost_ownership_are_told_apart() -> None:
    assert issubclass(AlreadyInUse, UsageError)
    assert not issubclass(NotTheOwner, UsageError)
    assert {one for one in CLASSES if issubclass(one, NotTheOwner)} == {
        NotTheOwner,
        PartitionTaken,
        OwnerLevelSuperseded,
        CheckpointStepBack,
        ReaderDisconnected,
    }
