"""Quotes that do not end: the answer is that of Python's own reader in its strict mode, whatever the blocks."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli.rows.csv_quotes import broken_quote


def is_whole(text: str) -> bool:
    try:
        list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        return False
    return True


@given(st.text('",\na', max_size=30), st.integers(1, 12))
def test_agreement_with_a_strict_reader(text: str, block: int) -> None:
    assert (broken_quote(io.BytesIO(text.encode()), block) is None) == is_whole(text)


@pytest.mark.more
@given(st.lists(st.lists(st.text(min_size=1), min_size=2, max_size=3), max_size=5), st.integers(1, 12))
def test_what_is_written_as_it_should_be_is_whole(rows: list[list[str]], block: int) -> None:
    written = io.StringIO(newline="")
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows(rows)
    assert broken_quote(io.BytesIO(written.getvalue().encode("utf-8", "replace")), block) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b\n1,"x\n2,y\n', 2),
        ('a,b\n1,"x"\n2,"y\n3,z\n4,"w"\n', 3),
        ('a,b\r\n1,x\r\n2,"y" z\r\n', 3),
        ('\ufeff"a,b\n', 1),
        ('\ufeff"a",b\n1,5" pipe\n"2 ""x"" \n y",""\n', None),
    ],
)
def test_the_line_on_which_it_begins(text: str, line: int | None) -> None:
    assert broken_quote(io.BytesIO(text.encode())) == line
