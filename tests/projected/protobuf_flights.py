"""The flights of `flights` in Protobuf: by a schema beside the file, and by the numbers of a registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from leasehold_testkit.emulators.registry import RegistryServer
from tests.formats.protobuf_schemas import message_class
from tests.projected.flights import write

PROTO = """syntax = "proto3";
package flights;
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
import "google/type/decimal.proto";
message Other { string id = 1; }
message Flight {
  string id = 1;
  optional double delay = 2;
  optional string op = 3;
  optional int64 at = 4;
  google.type.Decimal paid = 5;
  google.type.Date day = 6;
  google.protobuf.Timestamp seen = 7;
  optional string note = 8;
}
"""


def write_protobuf(folder: Path, **changes: str) -> Path:
    """The file for bodies in Protobuf, and their schema beside it."""
    (folder / "flight.proto").write_text(PROTO)
    how = 'rescue = "rest"\nformat = "protobuf"\nwriter_schema = "flight.proto"\nmessage = "flights.Flight"'
    return write(folder, **{"rescue": how, **changes})


def protobuf_bodies(rng: Random, count: int) -> list[bytes]:
    """Bodies of some 20 entities: most fit, some delete, and some are broken or do not fit."""
    kind = message_class(PROTO, "flights.Flight")
    bodies = []
    for number in range(count):
        flight = kind(id=f"f{rng.randrange(20)}")
        values = {
            "delay": rng.choice([1.5, -3.0, None, 0.1, 1e300]),
            "op": rng.choice(["u", "u", "u", "d", None, "D"]),
            "at": rng.choice([number, None, 2**62]),
            "note": rng.choice([None, None, None, "by hand"]),
        }
        for name, value in values.items():
            if value is not None:
                setattr(flight, name, value)
        if rng.random() < 0.7:
            flight.paid.value = rng.choice(["12.50", "3", "x" if rng.random() < 0.1 else "4"])
        if rng.random() < 0.5:
            flight.day.year, flight.day.month, flight.day.day = 2026, 2, 3
        if rng.random() < 0.7:
            flight.seen.seconds, flight.seen.nanos = 1_700_000_000, rng.choice([5_000, 5 if rng.random() < 0.1 else 0])
        body = flight.SerializeToString()
        bodies.append(rng.choice([b"", body[:-1], body + b"\x0f", b"\x0a\x01\xff"]) if rng.random() < 0.1 else body)
    return bodies


def protobuf_start(body: bytes) -> bytes:
    """What a body in Protobuf begins with: the length of its entity, and that."""
    return body[: body[1] + 2] if body[1:] else b""


def write_registered_protobuf(folder: Path, url: str) -> Path:
    """The file for bodies in Protobuf whose schemas are in this registry."""
    return write(folder, rescue=f'rescue = "rest"\nformat = "protobuf"\nregistry = "{url}"')


def registered_protobuf(server: RegistryServer, rng: Random, sent: Sequence[bytes]) -> list[bytes]:
    """The same bodies, each behind the number of one of two schemas, or of none, and the place of the type."""
    numbers = [server.register("flights", f"{PROTO}// {name}", "PROTOBUF") for name in ("one", "other")]
    chosen = [rng.choice([*numbers, 99]) if rng.random() < 0.2 else numbers[0] for _ in sent]
    return [b"\0" + number.to_bytes(4, "big") + b"\x02\x02" + body for number, body in zip(chosen, sent, strict=True)]


def registered_protobuf_start(body: bytes) -> bytes:
    """As `protobuf_start`, behind the number and the place."""
    return protobuf_start(body[7:])
