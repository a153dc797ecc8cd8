"""Bodies that were compressed, by their senders, to what was sent.

Owns which bodies these are: those that begin as gzip (RFC 1952) or Zstandard (RFC 8878) does, where the setting
`content_encoding` names it. The others are read as they are, so a topic may hold both. A body that is not whole, or is
more than `MOST` bytes when it is not compressed, is rejected. Bodies are handed on before those of a group are twice
that, so a batch of short bodies that are long inside costs time, and no memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.body_format import GZIP, IDENTITY, ZSTD

MOST = 64 << 20
_STEP = 1 << 20
_MARKS = {GZIP: b"\x1f\x8b", ZSTD: b"\x28\xb5\x2f\xfd"}

Decoded = tuple[pa.Array, dict[int, str]]
"""Some of the bodies, and why there is none at a place, by places."""


def decoded(bodies: pa.Array, encoding: str) -> Iterator[Decoded]:
    """These bodies, of type binary, in groups in their order; a null where one cannot be read."""
    marked = None if encoding == IDENTITY else pc.fill_null(pc.starts_with(bodies, _MARKS[encoding]), False)
    if marked is None or not pc.any(marked).as_py():
        yield bodies, {}
        return
    group: list[bytes | None] = []
    wrong: dict[int, str] = {}
    size = 0
    for body, compressed in zip(bodies.to_pylist(), marked.to_pylist(), strict=True):
        if compressed:
            try:
                body = _decompressed(body, encoding)
            except OSError:
                wrong[len(group)], body = f"the body is not whole {encoding}", None
            except ValueError as error:
                wrong[len(group)], body = str(error), None
        group.append(body)
        size += len(body or b"")
        if size > MOST:
            yield pa.array(group, pa.binary()), wrong
            group, wrong, size = [], {}, 0
    if group:
        yield pa.array(group, pa.binary()), wrong


def _decompressed(body: bytes, encoding: str) -> bytes:
    """What is in all members, or frames, of a body, one behind the other. Raises `ValueError`, `OSError`."""
    parts: list[bytes] = []
    size = 0
    with pa.CompressedInputStream(pa.BufferReader(body), encoding) as stream:
        while part := stream.read(_STEP):
            parts.append(part)
            size += len(part)
            if size > MOST:
                raise ValueError(f"the body is more than {MOST >> 20} MiB when it is not compressed")
    return b"".join(parts)
