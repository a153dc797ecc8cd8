"""Bodies that their senders have compressed."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from leasehold.body_format import BodyFormat
from leasehold.errors import ConfigError
from leasehold.formats import BodyReader, encodings

COLUMNS = pa.schema([("id", pa.string()), ("n", pa.int64())])
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def outcome(encoding: str, bodies: list[bytes | None], **how: Any) -> list[Any]:
    reader = BodyReader(COLUMNS, BodyFormat(content_encoding=encoding, **how))
    read = reader.read(pa.array(bodies, pa.binary()))
    reasons = [None] * len(bodies) if read.reasons is None else read.reasons.to_pylist()
    return [reason or row["id"] for row, reason in zip(read.columns.to_pylist(), reasons, strict=True)]


@pytest.mark.parametrize("many", [1, 60])
@pytest.mark.parametrize("encoding", COMPRESS)
def test_what_is_compressed_is_read_beside_what_is_not(encoding: str, many: int) -> None:
    compress = COMPRESS[encoding]
    body = compress(b'{"id":"a","n":1}')
    not_whole = f"the body is not whole {encoding}"
    bodies: dict[bytes | None, Any] = {
        body: "a",
        b'{"id":"b"}': "b",
        None: "the event has no body",
        compress(b"[1]"): "the body is not a JSON object: it is an array",
        compress(b""): "the body is not a JSON object: expecting value at character 1",
        body[:-3]: not_whole,
        body[:4]: not_whole,
        body + b"x": not_whole,
        body[:-6] + bytes([body[-6] ^ 255]) + body[-5:]: not_whole,
        compress(b'{"id":') + compress(b'"c"}'): "c",
        compress(b"{" + b" " * 100_000 + b"}"): None,
        compress(b"") * 5_000 + body: "a",
    }
    assert outcome(encoding, list(bodies) * many) == list(bodies.values()) * many


@pytest.mark.parametrize("encoding", COMPRESS)
def test_bodies_that_are_long_inside_are_rejected_alone_and_cost_no_memory(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert encodings.MOST == 64 << 20
    monkeypatch.setattr(encodings, "MOST", 4 << 20)
    compress = COMPRESS[encoding]
    good, large = compress(b'{"id":"a"}'), compress(b'{"id":"b",' + b" " * (3 << 20) + b'"n":1}')
    bomb = compress(bytes(encodings.MOST + 1))
    assert len(bomb) < 100_000
    tracemalloc.start()
    found = outcome(encoding, [good, bomb, *[large] * 12, good, bomb, large])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reason = "the body is more than 4 MiB when it is not compressed"
    assert found == ["a", reason, *["b"] * 12, "a", reason, "b"]
    assert most < 6 * encodings.MOST


def test_bodies_in_other_formats_are_compressed_too() -> None:
    schema = 'syntax = "proto3"; message M { string id = 1; }'
    assert outcome("gzip", [gzip.compress(b"\x0a\x01x"), b"\x0a\x01y"], format="protobuf", writer_schema=schema) == [
        "x",
        "y",
    ]


def test_other_words_are_refused() -> None:
    with pytest.raises(ConfigError, match="identity, gzip or zstd"):
        BodyFormat(content_encoding="br")
