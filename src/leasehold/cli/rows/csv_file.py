"""CSV files as rows of JSON, digit for digit.

The file is read twice: first to learn what each column is and that every row can be read, so that a file
with a bad row is refused before any of it is sent; then to send it.

    every value is a number                  the number, as it is written (1.50 stays 1.50); 0.5 for .5, 5.0 for 5.
    every value is true or false             true or false
    nearly all values are numbers            text, with a warning: the others may be mistakes
    anything else                            text, as it is written: dates, codes like 007 and +4930
    an empty field                           null; `""` is an empty text
    NA, N/A, #N/A, NaN, null, NULL, None     null in a column of numbers or of true and false, else text

The file is UTF-8, separated by commas, its first row names the columns. One with a quoted value that does not end is
refused: rows behind it would be taken for a part of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from leasehold.arrow_masks import nulled
from leasehold.cli.rows.csv_quotes import broken_quote
from leasehold.cli.rows.json_text import objects, quoted
from leasehold.cli.rows.row_file import FileRows, RowFile
from leasehold.printable import counted, excerpt

logger = logging.getLogger(__name__)

_BLOCK = 4 << 20
_MISSING = pa.array(["NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None"])
_BOOLEANS = pa.array(["true", "True", "TRUE", "false", "False", "FALSE"])
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_LOOSE_NUMBER = r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_SELDOM = 10
"""A column is meant to be numbers where at most one value in this number of them is something else."""


class TextKind(Enum):
    """What all values of a column are, seen so far."""

    NOTHING = "no value"
    NUMBER = "numbers as JSON writes them"
    LOOSE_NUMBER = "numbers, some written as .5 or 5."
    BOOLEAN = "true or false"
    TEXT = "text"

    def joined(self, other: TextKind) -> TextKind:
        """What a column is that holds both."""
        if self is other or other is TextKind.NOTHING:
            return self
        if self is TextKind.NOTHING:
            return other
        return TextKind.LOOSE_NUMBER if {self, other} == {TextKind.NUMBER, TextKind.LOOSE_NUMBER} else TextKind.TEXT


def kind_of(values: pa.Array) -> TextKind:
    """What the values, as text, are."""
    present = _present(values).drop_null()
    if not len(present):
        return TextKind.NOTHING
    if pc.all(pc.match_substring_regex(present, _NUMBER)).as_py():
        return TextKind.NUMBER
    if pc.all(pc.match_substring_regex(present, _LOOSE_NUMBER)).as_py():
        return TextKind.LOOSE_NUMBER
    if pc.all(pc.is_in(present, value_set=_BOOLEANS)).as_py():
        return TextKind.BOOLEAN
    return TextKind.TEXT


def json_of(values: pa.Array, kind: TextKind) -> pa.Array:
    """The values, as text, of a column of that kind, as JSON text."""
    if kind is TextKind.TEXT:
        return quoted(values).fill_null("null")
    values = _present(values)
    if kind is TextKind.BOOLEAN:
        values = pc.utf8_lower(values)
    elif kind is TextKind.LOOSE_NUMBER:
        for pattern, instead in ((r"^(-?)\.", r"\10."), (r"\.($|[eE])", r".0\1")):
            values = pc.replace_substring_regex(values, pattern, instead)  # RE2 reads \10 as group 1 and a 0
    return values.fill_null("null")


def _present(values: pa.Array) -> pa.Array:
    """The values, with null for what stands for a missing number."""
    missing = pc.is_in(values, value_set=_MISSING)
    return nulled(values, missing) if pc.any(missing).as_py() else values


class _Numbers:
    """The values of a column that are nearly all numbers, block by block."""

    def __init__(self) -> None:
        self.values = self.others = 0
        self._first = ""

    def prevail(self, column: pa.Array, kind: TextKind) -> bool:
        """Whether they do, with the values of this column, which are of this kind."""
        present = _present(column).drop_null()
        others = present[:0]
        if kind not in (TextKind.NUMBER, TextKind.LOOSE_NUMBER):
            others = present.filter(pc.invert(pc.match_substring_regex(present, _LOOSE_NUMBER)))
        if len(others) and not self.others:
            self._first = others[0].as_py()
        self.values, self.others = self.values + len(present), self.others + len(others)
        return self.others * _SELDOM <= self.values

    def __str__(self) -> str:
        of = counted(self.values, "value")
        return f"{self.others:,} of its {of} are no number, the first is {excerpt(repr(self._first))}"


class CsvFile(RowFile):
    """A CSV file; `nulls` are further texts that stand for null, in every column."""

    def __init__(self, path: Path, key: str, batch_rows: int, nulls: Sequence[str]) -> None:
        self._nulls = ["", *nulls]
        self._names: list[str] = []
        super().__init__(path, key, batch_rows)

    def check(self) -> None:
        self.check_utf8()
        with self._reader() as (reader, _):
            self._names = list(reader.schema.names)
        self.check_key(self._names)

    def rows(self) -> Iterator[FileRows]:
        with self.errors_named():
            before = self.path.stat()
            kinds = self._kinds()
            with self._reader() as (reader, raw):
                for block in reader:
                    now = self.path.stat()
                    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                        self.refuse("the file was changed while it was read: send a copy of it")
                    for start in range(0, block.num_rows, self.batch_rows):
                        batch = block.slice(start, self.batch_rows)
                        columns = [json_of(batch.column(name), kinds[name]) for name in self._names]
                        bodies = objects(self._names, columns).cast(pa.binary())
                        yield FileRows(bodies, self._keys(batch, kinds[self.key]), raw.tell())

    def _keys(self, batch: pa.RecordBatch, kind: TextKind) -> pa.Array:
        values = batch.column(self.key)
        if kind is TextKind.TEXT:
            return values
        text = json_of(values, kind)
        return nulled(text, pc.equal(text, "null"))

    def _kinds(self) -> dict[str, TextKind]:
        """What each column is. Reads the whole file, and so finds every row that cannot be read."""
        with self.opened() as (data, _):
            line = broken_quote(data)
        if line is not None:
            self.refuse(
                "a value begins with a quote and does not end with one: a quoted value ends with a quote before the "
                "comma or the end of the line, and a quote inside of it is written twice",
                f"line {line}",
            )
        kinds = dict.fromkeys(self._names, TextKind.NOTHING)
        numbers = {name: _Numbers() for name in self._names}
        with self._reader() as (reader, _):
            for block in reader:
                for name in self._names:
                    column = block.column(name)
                    kind = TextKind.TEXT if kinds[name] is TextKind.TEXT else kind_of(column)
                    if name in numbers and not numbers[name].prevail(column, kind):
                        del numbers[name]
                    kinds[name] = kinds[name].joined(kind)
        for name, found in numbers.items():
            if found.others:
                logger.warning("%s: the column %s goes as text: %s", self.path, name, found)
        return kinds

    @contextmanager
    def _reader(self) -> Iterator[tuple[Any, BinaryIO]]:
        """All columns as text, in blocks."""
        with self.opened() as (data, raw), self._rows_named():
            yield (
                csv.open_csv(
                    data,
                    # One thread: it is as fast for text, and only it knows the number of a bad row.
                    read_options=csv.ReadOptions(use_threads=False, block_size=_BLOCK),
                    parse_options=csv.ParseOptions(newlines_in_values=True),
                    convert_options=csv.ConvertOptions(
                        column_types=dict.fromkeys(self._names, pa.string()),
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=False,
                        null_values=self._nulls,
                    ),
                ),
                raw,
            )

    @contextmanager
    def _rows_named(self) -> Iterator[None]:
        try:
            yield
        except pa.ArrowInvalid as error:
            text = str(error).partition("\n")[0]
            if "straddling object" in text:
                self.refuse(f"a row has more than {_BLOCK:,} bytes, or several are not parted by line ends")
            found = re.search(r"Row #(\d+): ", text)
            if not found:
                raise
            column = re.match(r"In CSV column #(\d+): ", text)
            place = f", column {self._names[int(column[1])]!r}" if column and self._names else ""
            self.refuse(text[found.end() :], f"row {found[1]} (the header is row 1){place}")
