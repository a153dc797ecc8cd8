"""What a file of rows is, whatever its format: the base of its readers.

Owns how errors name the file, the check of the column for the key, and unpacking. A file is opened, and its column for
the key looked up, before anything is read from it. Every error is a `UsageError` that names the file, and the row or
line where it is known.
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

from leasehold.errors import SchemaMismatch, UsageError


@dataclass(frozen=True, slots=True)
class FileRows:
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
    def rows(self) -> Iterator[FileRows]:
        """All rows, at most `batch_rows` at a time."""

    def refuse(self, reason: str, where: str = "") -> NoReturn:
        """Raise a `UsageError` about this file."""
        raise UsageError(f"{self.path}{', ' if where else ''}{where}: {reason}")

    def check_utf8(self) -> None:
        """Refuse a file that is UTF-16 or UTF-32, as its mark tells or the zeros beside its first characters."""
        with self.opened() as (data, _):
            found = json.detect_encoding(data.read(4))
        if not found.startswith("utf-8"):
            self.refuse(f"the file is {found[:6].upper()}: save it as UTF-8")

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
