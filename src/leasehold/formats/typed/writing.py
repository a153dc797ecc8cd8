"""JSON bodies to bodies of a format with types, for who sends rows of files.

Owns the promise that nothing is altered: what was written is read back, and a row that comes out otherwise is refused.
A list or a map that is null may come back empty, since a format may have no null of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from leasehold.body_format import BodyFormat
from leasehold.formats.bodies import BodyReader
from leasehold.printable import printable, shortened

_SHOWN = 200  # characters of what a library says


class TypedWriter:
    """Writes JSON bodies by one schema: `encoded` makes a body of the values of these columns, `how` reads it back."""

    def __init__(self, columns: pa.Schema, how: BodyFormat, encoded: Callable[[dict[str, Any]], bytes]) -> None:
        self._json, self._back, self._encoded = BodyReader(columns), BodyReader(columns, how), encoded

    def write(self, bodies: pa.Array) -> tuple[pa.Array, int | None, str]:
        """The same bodies in the format; or of the first that cannot be one, its place and the reason."""
        read = self._json.read(bodies)
        if read.reasons is not None:
            place = read.reasons.is_valid().index(True).as_py()
            return bodies, place, read.reasons[place].as_py()
        written: list[bytes] = []
        for row in read.columns.to_pylist():
            try:
                written.append(self._encoded(row))
            except Exception as error:  # noqa: BLE001 -- of a library that raises what it will, on a row of a file
                return bodies, len(written), printable(shortened(str(error), _SHOWN))
        made = pa.array(written, pa.binary())
        back = self._back.read(made)
        for place, (row, other) in enumerate(zip(read.columns.to_pylist(), back.columns.to_pylist(), strict=True)):
            if back.reasons is not None and back.reasons[place].is_valid:
                return bodies, place, back.reasons[place].as_py()
            name = next((name for name in row if not _is_same(row[name], other[name])), None)
            if name is not None:
                value = "null" if row[name] is None else row[name]
                return bodies, place, f"the field {name} is {value}, which the schema cannot hold as it is"
        return made, None, ""


def is_map(value: Any) -> bool:
    """Whether a list, as Arrow gives it, has the entries of a map."""
    return bool(value) and all(isinstance(one, tuple) for one in value)


def _is_same(value: Any, back: Any) -> bool:
    """Whether a value has come back as it was."""
    if isinstance(back, list):
        value = [] if value is None else value
        if not isinstance(value, list) or len(value) != len(back):
            return False
        if is_map(value):
            entries = dict(back)
            return all(key in entries and _is_same(one, entries[key]) for key, one in value)
        return all(map(_is_same, value, back))
    if isinstance(value, dict) and isinstance(back, dict):
        return all(_is_same(one, back[name]) for name, one in value.items())
    return repr(value) == repr(back)
