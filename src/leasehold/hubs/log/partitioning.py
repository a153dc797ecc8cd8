"""Which partition of a log an event goes to.

Owns the hash of a partition key: the first eight bytes, big-endian, of BLAKE2b over its UTF-8 text, modulo
the number of partitions. It is the same in every process and release, so that the events of a key stay in
one partition as long as the number of partitions does; when that grows, most keys move. Pure.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc


class Keyless(StrEnum):
    """Where events without a partition key go."""

    IN_TURN = "in turn"
    """To each partition in turn: even, and without any order among them."""
    ONE_PARTITION = "one partition"
    """All to one partition, that of the empty key: they keep their order."""


def partition_of(key: str, partitions: int) -> int:
    """The partition of a key, of this many."""
    digest = blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % partitions


def assigned(keys: pa.Array, partitions: int, keyless: Keyless, turn: int) -> pa.Array:
    """The partition of each row as int32; with `IN_TURN` the first row without a key goes to that of `turn`."""
    encoded = keys.dictionary_encode()
    # The hash is Python's work per distinct key; all that is done per row is Arrow's.
    of_keys = pa.array([partition_of(key, partitions) for key in encoded.dictionary.to_pylist()], pa.int32())
    by_key = of_keys.take(encoded.indices)
    if not keys.null_count:
        return by_key
    if keyless is Keyless.ONE_PARTITION:
        return by_key.fill_null(partition_of("", partitions))
    place = pc.cumulative_sum(keys.is_null().cast(pa.int64()))
    place = pc.add(place, turn - 1)
    in_turn = pc.subtract(place, pc.multiply(pc.divide(place, partitions), partitions))
    return pc.coalesce(by_key, in_turn.cast(pa.int32()))


def split(table: pa.Table, partition_of_row: pa.Array) -> list[tuple[int, pa.Table]]:
    """The rows of each partition, in the table's order."""
    if not table.num_rows:
        return []
    order = pc.sort_indices(partition_of_row)  # a stable sort: events of a partition keep their order
    counts = sorted((c["values"], c["counts"]) for c in partition_of_row.value_counts().to_pylist())
    if len(counts) == 1:
        return [(counts[0][0], table)]
    ordered = table.take(order)
    parts, at = [], 0
    for partition, rows in counts:
        parts.append((partition, ordered.slice(at, rows)))
        at += rows
    return parts
