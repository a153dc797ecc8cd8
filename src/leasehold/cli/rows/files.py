"""Files of rows, read as event bodies and partition keys.

Owns the choice of a reader by a file's extension, and the readers of JSON lines and Parquet; that of CSV, which has to
guess types, is `csv_file.py`. Reading takes bounded memory, whatever the size of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from leasehold.cli.rows.csv_file import CsvFile
from leasehold.cli.rows.json_text import NotJson, as_json, as_key, objects
from leasehold.cli.rows.row_file import FileRows, RowFile
from leasehold.errors import UsageError
from leasehold.formats.json_rows import SPACE, SURROGATE, compact
from leasehold.formats.json_values import Real, Whole

EXTENSIONS = ".csv, .csv.gz, .jsonl, .ndjson, .json (each also with .gz) and .parquet"


class ParquetFile(RowFile):
    """A Parquet file; types as they are stored."""

    def check(self) -> None:
        with pq.ParquetFile(self.path) as file:
            self.check_key(file.schema_arrow.names)

    def rows(self) -> Iterator[FileRows]:
        done = 0
        with self.errors_named(), pq.ParquetFile(self.path) as file:
            total = max(1, file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=self.batch_rows):
                columns = [self._column(batch, name, done) for name in batch.schema.names]
                bodies = objects(batch.schema.names, columns).cast(pa.binary())
                done += batch.num_rows
                yield FileRows(bodies, as_key(batch.column(self.key)), self.size * done // total)

    def _column(self, batch: pa.RecordBatch, name: str, done: int) -> pa.Array:
        try:
            return as_json(batch.column(name))
        except NotJson as error:
            place = f"row {done + error.row + 1}, " if error.row is not None else ""
            self.refuse(error.reason, f"{place}column {name!r}")
        except pa.ArrowInvalid as error:
            self.refuse(str(error), f"rows {done + 1} to {done + batch.num_rows}, column {name!r}")


class JsonLinesFile(RowFile):
    """A JSON object a line; blank lines are skipped, and a field that is not there is a null key.

    A body is the line as it is written, without blanks around it; only NaN becomes null. Infinity is refused, and a
    name that occurs twice in one object, of which a reader would keep one value.
    """

    def check(self) -> None:
        self.check_utf8()
        with self.opened() as (lines, _):
            for number, line in enumerate(lines, 1):
                if line.strip():
                    self.check_key(list(self._object(self._text(line, number), number)))
                    return

    def rows(self) -> Iterator[FileRows]:
        bodies: list[str] = []
        keys: list[str | None] = []
        with self.errors_named(), self.opened() as (lines, raw):
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                text = self._text(line, number)
                row = self._object(text, number)
                try:
                    if SURROGATE.search(text):
                        compact(row).encode()  # half a pair is no character
                    keys.append(_key(row.get(self.key)))
                except ValueError as error:
                    self.refuse(f"not JSON that can be sent ({error})", f"line {number}")
                except RecursionError:
                    self.refuse(_TOO_DEEP, f"line {number}")
                bodies.append(_NAN.sub(lambda found: found[1] or "null", text) if "NaN" in text else text)
                if len(bodies) >= self.batch_rows:
                    yield self._rows(bodies, keys, raw)
                    bodies, keys = [], []
            if bodies:
                yield self._rows(bodies, keys, raw)

    def _rows(self, bodies: list[str], keys: list[str | None], raw: BinaryIO) -> FileRows:
        return FileRows(pa.array(bodies, pa.string()).cast(pa.binary()), pa.array(keys, pa.string()), raw.tell())

    def _text(self, line: bytes, number: int) -> str:
        try:
            return line.removeprefix(b"\xef\xbb\xbf").decode().strip(SPACE)
        except UnicodeDecodeError as error:
            self.refuse(f"not a JSON object ({error}); each line has to be one", f"line {number}")

    def _object(self, text: str, number: int) -> dict[str, object]:
        try:
            row = _DECODER.decode(text)
        except _NameTwice as error:
            self.refuse(
                f"the name {error.name!r} occurs twice in one object, and a reader would keep one of the two values: "
                "rename one, or leave it out",
                f"line {number}",
            )
        except json.JSONDecodeError as error:
            self.refuse(
                f"not a JSON object ({error.msg} at character {error.pos + 1}); each line has to be one",
                f"line {number}",
            )
        except ValueError as error:
            self.refuse(f"not a JSON object ({error}); each line has to be one", f"line {number}")
        except RecursionError:
            self.refuse(_TOO_DEEP, f"line {number}")
        if not isinstance(row, dict):
            self.refuse("not a JSON object; each line has to be one", f"line {number}")
        return row


class _NameTwice(Exception):
    """An object has two members of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _NameTwice(next(name for name in made if names.count(name) > 1))
    return made


def _word(word: str) -> None:
    """What JSON has no word for and Python writes all the same."""
    if word != "NaN":
        raise ValueError(f"JSON has no word for {word}")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=Whole, parse_float=Real, parse_constant=_word)
_NAN = re.compile(r'("(?:[^"\\]|\\.)*+")|NaN')
"""Strings, which stay, and the word outside of them."""
_TOO_DEEP = "it is nested too deeply to be read; flatten it, or send it as text in a field"
"""How deep Python reads and writes is its own, and another with each release."""


def _key(value: object) -> str | None:
    """The text of a value, as it is written; without blanks where it is an object or an array."""
    return value if value is None or type(value) is str else compact(value)


def open_rows(path: Path, key: str, *, batch_rows: int, nulls: Sequence[str] = ()) -> RowFile:
    """The reader for a file, by its extension. `nulls` are texts that stand for null in a CSV file.

    Raises `UsageError` for a file that cannot be read and `SchemaMismatch` for one without the column `key`.
    """
    name = path.name.lower()
    unpacked = name.removesuffix(".gz")
    if unpacked.endswith(".csv"):
        return CsvFile(path, key, batch_rows, nulls)
    if unpacked.endswith((".jsonl", ".ndjson", ".json")):
        return JsonLinesFile(path, key, batch_rows)
    if name.endswith(".parquet"):
        return ParquetFile(path, key, batch_rows)
    raise UsageError(f"{path}: what it holds is told by its extension, and this is none of {EXTENSIONS}")
