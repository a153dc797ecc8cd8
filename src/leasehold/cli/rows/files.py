"""Files of rows, read as event bodies and partition keys.

Owns the choice of a reader by a file's extension, and the readers of JSON lines and Parquet; that of CSV, which has to
guess types, is `csv_file.py`. Reading takes bounded memory, whatever the size of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from leasehold.cli.rows.csv_file import CsvFile
from leasehold.cli.rows.json_text import NotJson, as_json, as_key, objects
from leasehold.cli.rows.row_file import FileRows, RowFile
from leasehold.errors import UsageError

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

    A body is the line's object written compactly. NaN becomes null and infinity is refused, as everywhere.
    """

    def check(self) -> None:
        with self.opened() as (lines, _):
            for number, line in enumerate(lines, 1):
                if line.strip():
                    self.check_key(list(self._object(line, number)))
                    return

    def rows(self) -> Iterator[FileRows]:
        bodies: list[bytes] = []
        keys: list[str | None] = []
        with self.errors_named(), self.opened() as (lines, raw):
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                row = self._object(line, number)
                try:
                    bodies.append(_compact(row).encode())
                except (ValueError, RecursionError) as error:
                    self.refuse(f"not JSON that can be sent ({error})", f"line {number}")
                key = row.get(self.key)
                keys.append(key if key is None or isinstance(key, str) else _compact(key))
                if len(bodies) >= self.batch_rows:
                    yield self._rows(bodies, keys, raw)
                    bodies, keys = [], []
            if bodies:
                yield self._rows(bodies, keys, raw)

    def _rows(self, bodies: list[bytes], keys: list[str | None], raw: BinaryIO) -> FileRows:
        return FileRows(pa.array(bodies, pa.binary()), pa.array(keys, pa.string()), raw.tell())

    def _object(self, line: bytes, number: int) -> dict[str, object]:
        try:
            row = _DECODER.decode(line.removeprefix(b"\xef\xbb\xbf").decode())
        except json.JSONDecodeError as error:
            self.refuse(
                f"not a JSON object ({error.msg} at character {error.pos + 1}); each line has to be one",
                f"line {number}",
            )
        except (ValueError, RecursionError) as error:
            self.refuse(f"not a JSON object ({error}); each line has to be one", f"line {number}")
        if not isinstance(row, dict):
            self.refuse("not a JSON object; each line has to be one", f"line {number}")
        return row


def _word(word: str) -> None:
    """What JSON has no word for and Python writes all the same."""
    if word != "NaN":
        raise ValueError(f"JSON has no word for {word}")


_DECODER = json.JSONDecoder(parse_constant=_word)
_STRICT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _compact(value: object) -> str:
    return _STRICT.encode(value)


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
