"""What the page is given: colours, rates, and text that is nothing but text."""

from __future__ import annotations

import json

from leasehold.dashboard.view import PartitionVerdict, PipelineLook, ShownParked, ShownRejected, body_text, view
from leasehold.operations.colours import COLOURS, colours
from leasehold.operations.moves import Move, MoveKind
from leasehold.printable import LONGEST
from leasehold.sinks.set_aside import SetAsideCounts
from tests.dashboard.looks import group, row


def test_who_is_here_has_a_colour_of_its_own_and_keeps_it() -> None:
    known = colours({}, ["a", "b", "", "a"])
    assert known == {"a": 0, "b": 1}
    known = colours(known, ["b", "c"])  # a has gone; what is shown of its past stays as it is
    assert known == {"a": 0, "b": 1, "c": 2}
    for number in range(50):
        known = colours(known, ["b", f"x{number}"])
        assert known[f"x{number}"] != known["b"] == 1
    many = colours({}, [str(number) for number in range(COLOURS)])
    assert sorted(many.values()) == list(range(COLOURS))


def test_rates_are_of_what_was_done_and_sent_between_two_looks() -> None:
    before = PipelineLook(10.0, group(row(checkpoint=10, end=20), row("1", checkpoint=None, end=5)))
    now = PipelineLook(12.0, group(row(checkpoint=30, end=50), row("1", checkpoint=4, end=5)))
    shown = view("p", now, palette={}, before=before, seconds=2.0)
    assert (shown["done"], shown["sent"]) == (12.0, 15.0)
    assert [one["done"] for one in shown["partitions"]] == [10.0, 2.0]
    back = view("p", PipelineLook(14.0, group(row(checkpoint=0, end=50))), palette={}, before=now, seconds=2.0)
    assert back["done"] == 0.0  # a reset is no work


def test_what_others_wrote_is_text_on_one_line_and_not_too_long() -> None:
    hostile = "<script>alert(1)</script>\n\x1b[31m\u202e"
    seen = PipelineLook(
        1.0,
        group(row(owner=hostile, last_error=hostile, failures=3)),
        aside=SetAsideCounts(rejected=1, dead_letters=1, parked=1),
        rows=[ShownRejected("0", 7, hostile, body_text(b"x" * 9_999), "2026-11-22T10:00:00Z")],
        parked=[ShownParked("0", 8, hostile, hostile, hostile, 1, 5.0, None)],
        verdicts={"0": PartitionVerdict("stalled", hostile)},
        error=hostile,
    )
    shown = view("p", seen, palette={hostile: 3}, history=[Move(1.0, MoveKind.LEFT, owner=hostile)])
    text = json.dumps(shown, ensure_ascii=False)
    assert text.isprintable()
    assert text.count("<script>") == 11  # as it came: the page puts it in as text
    assert len(shown["rejectedRows"][0]["body"]) == LONGEST
    assert (shown["rejected"], shown["deadLetters"], shown["parked"], shown["nextRetry"]) == (1, 1, 1, None)
    assert (shown["partitions"][0]["verdict"], shown["partitions"][0]["colour"]) == ("stalled", 3)


def test_a_traceback_keeps_its_lines_and_its_end() -> None:
    said = "frame\x1b\n" * LONGEST + "RuntimeError: <b>"
    row = ShownRejected("0", 7, "r", "b", "2026-11-22T10:00:00Z", traceback=said)
    [shown] = view("p", PipelineLook(1.0, group(), rows=[row]), palette={})["rejectedRows"]
    assert shown["traceback"].endswith("\\x1b\nRuntimeError: <b>")
    assert shown["traceback"].startswith("…")
    assert "\x1b" not in shown["traceback"]


def test_bodies_as_text() -> None:
    assert body_text("ä".encode()) == "ä"
    assert body_text(b"\xff\x00") == "0xff00"
    assert body_text(None) == "null"
    assert body_text({"a": 1}) == '{"a": 1}'


def test_before_the_first_look_there_is_an_error_and_nothing_else() -> None:
    shown = view("p", PipelineLook(0.0, error="the store is away"), palette={})
    assert (shown["error"], shown["partitions"]) == ("the store is away", [])
