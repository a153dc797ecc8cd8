"""What goes to a terminal or into a log, whatever others wrote."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.printable import LONGEST, PrintableFormatter, excerpt, printable, printable_json, printable_lines, span

ANY = st.text(st.characters(exclude_categories=()))


@given(ANY)
def test_nothing_that_cannot_be_printed_is_left(text: str) -> None:
    assert printable(text).isprintable()
    assert all(char.isprintable() or char == "\n" for char in printable_lines(text))


@given(st.text())
def test_json_says_the_same(text: str) -> None:
    shown = printable_json({text: [text]})
    assert shown.isprintable()
    assert json.loads(shown) == {text: [text]}


def test_an_excerpt_is_one_line_that_can_be_read() -> None:
    assert excerpt("a\nb") == "a\\nb"
    assert excerpt("x" * LONGEST) == "x" * LONGEST
    assert excerpt("x" * (LONGEST + 1)) == f"{'x' * (LONGEST - 1)}…"
    assert len(excerpt("\U000e0001" * 1_000_000)) < 10 * LONGEST


@pytest.mark.parametrize("text", ["plain", "späť", "日本語", "emoji 🙂", ""])
def test_what_can_be_printed_stays(text: str) -> None:
    assert printable(text) == text


def test_a_log_record_keeps_its_lines_and_nothing_else() -> None:
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "of %s", ("\x1b]0;title\x07",), None)
    assert PrintableFormatter("%(levelname)s\n%(message)s").format(record) == "WARNING\nof \\x1b]0;title\\x07"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *(
            (0, "0 s"),
            (0.02, "0.02 s"),
            (0.26, "0.3 s"),
            (5.0, "5 s"),
            (59.9, "59.9 s"),
            (60, "1 minute"),
            (90, "90 s"),
        ),
        *((120, "2 minutes"), (310, "5 minutes 10 s"), (3_600, "1 hour"), (5_400, "90 minutes"), (7_200, "2 hours")),
        *((7_380, "2 hours 3 minutes"), (86_400, "1 day"), (90_000, "25 hours"), (604_800, "7 days")),
        *((6.2 * 86_400, "6 days 4 hours"), (1_000 * 86_400, "1,000 days"), (float("inf"), "for ever")),
    ],
)
def test_lengths_of_time_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert span(seconds) == said
