"""What goes to a terminal or into a log, whatever others wrote."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.printable import LONGEST, PrintableFormatter, excerpt, printable, printable_json, printable_lines

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
