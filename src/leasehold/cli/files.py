"""Files of rows, read as event bodies and partition keys.

Owns the opening of CSV, JSON lines and Parquet files by their extension and the choice of a reader; the
readers are in `csv_file.py` and below. A file is opened, and its column for the key looked up, before
anything is read from it. Reading takes bounded memory, whatever the size of the file. Every error is a
`UsageError` that names the file, and the row or line where it is known.
"""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

import pyarrow as pa
import pyarrow.parquet as pq

from leasehold.cli.json_text import NotJson, as_json, as_key, objects
from leasehold.errors import SchemaMismatch, UsageError

EXTENSIONS = ".csv, .csv.gz, .jsonl, .ndjson, .json (each also with .gz) and .parquet"


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a file, in order: `bodies` (binary), `keys` (text or null) and how many bytes are read by now."""

    bodies: pa.Array
    keys: pa.Array
    bytes_read: int

    def table(self) -> pa.Table:
        """The rows as a hub takes them."""
        return pa.table({"body": self.bodies, "partitionKey": self.keys})


class RowFile(ABC):
    """A file whose rows become events; `key` is the column of the partition key."""

    def __init__(self, path: Path, key: str, batch_rows: int) -> None:
        self.path, self.key, self.batch_rows = path, key, batch_rows
        with self.errors_named():
            self.size = path.stat().st_size
            self.check()

    @abstractmethod
    def check(self) -> None:
        """Refuse a file that cannot be read at all, or has no column for the key."""

    @abstractmethod
    def rows(self) -> Iterator[Rows]:
        """All rows, at most `batch_rows` at a time."""

    def refuse(self, reason: str, where: str = "") -> NoReturn:
        """Raise a `UsageError` about this file."""
        raise UsageError(f"{self.path}{', ' if where else ''}{where}: {reason}")

    def check_key(self, names: Sequence[str]) -> None:
        """Refuse the file unless the column of the key is among `names`, and each of them is there once."""
        if self.key not in names:
            raise SchemaMismatch(
                f"{self.path}: there is no column {self.key!r} for the partition key. "
                f"The file has {', '.join(names)}: name one of them with --partition-key"
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SchemaMismatch(f"{self.path}: the column {twice[0]!r} is there twice: rename one of the two")

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Turn what reading may raise into a `UsageError` that names the file."""
        try:
            yield
        except (EOFError, zlib.error) as error:
            self.refuse(f"the file is cut off or damaged ({error})")
        except pa.ArrowInvalid as error:
            self.refuse(str(error).partition("\n")[0])
        except OSError as error:
            self.refuse(error.strerror or str(error))

    @contextmanager
    def opened(self) -> Iterator[tuple[BinaryIO, BinaryIO]]:
        """The file as bytes, unpacked, and the same as it is on disk (to see how far it has been read)."""
        with self.path.open("rb") as raw:
            if self.path.suffix.lower() != ".gz":
                yield raw, raw
                return
            with GzipFile(fileobj=raw) as unpacked:
                yield cast("BinaryIO", unpacked), raw


class ParquetFile(RowFile):
    """A Parquet file; types as they are stored."""

    def check(self) -> None:
        with pq.ParquetFile(self.path) as file:
            self.check_key(file.schema_arrow.names)

    def rows(self) -> Iterator[Rows]:
        done = 0
        with self.errors_named(), pq.ParquetFile(self.path) as file:
            total = max(1, file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=self.batch_rows):
                columns = [self._column(batch, name, done) for name in batch.schema.names]
                bodies = objects(batch.schema.names, columns).cast(pa.binary())
                done += batch.num_rows
                yield Rows(bodies, as_key(batch.column(self.key)), self.size * done // total)

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

    def rows(self) -> Iterator[Rows]:
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

    def _rows(self, bodies: list[bytes], keys: list[str | None], raw: BinaryIO) -> Rows:
        return Rows(pa.array(bodies, pa.binary()), pa.array(keys, pa.string()), raw.tell())

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
    from leasehold.cli.csv_file import CsvFile

    name = path.name.lower()
    unpacked = name.removesuffix(".gz")
    if unpacked.endswith(".csv"):
        return CsvFile(path, key, batch_rows, nulls)
    if unpacked.endswith((".jsonl", ".ndjson", ".json")):
        return JsonLinesFile(path, key, batch_rows)
    if name.endswith(".parquet"):
        return ParquetFile(path, key, batch_rows)
    raise UsageError(f"{path}: what it holds is told by its extension, and this is none of {EXTENSIONS}")
