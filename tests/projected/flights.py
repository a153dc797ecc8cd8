"""A pipeline file whose transform only picks columns, in a folder of the test's own; what is sent and what it keeps."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from fastavro import schemaless_writer

from leasehold import Event
from leasehold.hubs.log import LogHub
from leasehold_testkit.emulators.registry import RegistryServer

FILE = """
name = "flights"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///stores.db"
load_balancing_interval = "300ms"
settle_delay = "100ms"
[transform]
schema = "id STRING, delay DOUBLE, op STRING, at BIGINT, paid DECIMAL(8,2), day DATE, seen TIMESTAMP"
rescue = "rest"
sql = \"\"\"SELECT id, Delay AS late, op, AT, paid AS `amount paid`, day, seen, rest, enqueuedTime AS told, body AS raw,
                hub, partition, sequenceNumber, ownerLevel FROM events\"\"\"
[sink]
url = "sqlite:///entities.db"
table = "flights"
keys = ["id"]
keep = ["sequenceNumber"]
delete_when = "op = 'd'"
"""


def write(folder: Path, **changes: str) -> Path:
    """The file, with other text in place of some of its own: by name, `sql`, `delete_when`, or whole lines."""
    text = FILE
    for line, other in changes.items():
        start = text.index(f"{line} = ")
        end = text.index("\n", start) if line != "sql" else text.index("[sink]")
        text = f"{text[:start]}{other}{text[end:]}"
    (folder / "flights.toml").write_text(text)
    return folder / "flights.toml"


def bodies(rng: Random, count: int) -> list[bytes]:
    """Bodies of some 20 entities: most fit, some delete, and some do not fit."""
    made = []
    for number in range(count):
        body: dict[str, Any] = {
            "id": f"f{rng.randrange(20)}",
            "delay": rng.choice([1.5, -3, None, 0.1, 1e300]),
            "op": rng.choice(["u", "u", "u", "d", None, "D"]),
            "at": rng.choice([number, None, 2**62]),
            "paid": rng.choice(["12.50", 3, None]),
            "day": rng.choice(["2026-02-03", None]),
            "seen": rng.choice(["2026-02-03T04:05:06.000007+01:00", 1_700_000_000, None]),
        }
        if rng.random() < 0.2:
            body["note"] = "by hand"
        made.append(json.dumps(body).encode())
        if rng.random() < 0.1:
            made[-1] = rng.choice([b"", b"\xff", b"[1]", b'{"id":1,"paid":"x"}', b'{"id":', b'{"day":"yesterday"}'])
    return made


AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "delay", "type": ["null", "double"]},
        {"name": "op", "type": ["null", {"type": "enum", "name": "Op", "symbols": ["u", "d", "D"]}]},
        {"name": "at", "type": ["null", "long"]},
        {"name": "paid", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def write_avro(folder: Path, **changes: str) -> Path:
    """The file for bodies in Avro, and their schema beside it."""
    (folder / "flight.avsc").write_text(json.dumps(AVRO))
    avro = 'rescue = "rest"\nformat = "avro"\nwriter_schema = "flight.avsc"'
    return write(folder, **{"rescue": avro, **changes})


def avro_bodies(rng: Random, count: int) -> list[bytes]:
    """Bodies in Avro of some 20 entities: most fit, some delete, and some are broken or do not fit."""
    made = []
    for number in range(count):
        value = {
            "id": f"f{rng.randrange(20)}",
            "delay": rng.choice([1.5, -3.0, None, 0.1, 1e300]),
            "op": rng.choice(["u", "u", "u", "d", None, "D"]),
            "at": rng.choice([number, None, 2**62]),
            "paid": rng.choice([Decimal("12.50"), Decimal(3), None]),
            "day": rng.choice([date(2026, 2, 3), None]),
            "seen": rng.choice([1_700_000_000_123, None, 2**60 if rng.random() < 0.1 else None]),
            "note": rng.choice([None, None, None, "by hand"]),
        }
        out = io.BytesIO()
        schemaless_writer(out, AVRO, value)
        body = out.getvalue()
        made.append(rng.choice([b"", body[:-1], body + b"x", b"\x02\xff"]) if rng.random() < 0.1 else body)
    return made


def write_registered(folder: Path, url: str) -> Path:
    """The file for bodies in Avro whose schemas are in this registry."""
    return write(folder, rescue=f'rescue = "rest"\nformat = "avro"\nregistry = "{url}"')


def registered(server: RegistryServer, rng: Random, sent: Sequence[bytes]) -> list[bytes]:
    """The same bodies, each behind the number of one of two schemas, or of none."""
    numbers = [server.register("flights", json.dumps({**AVRO, "doc": name})) for name in ("one", "other")]
    chosen = [rng.choice([*numbers, 99]) if rng.random() < 0.2 else numbers[0] for _ in sent]
    return [b"\0" + number.to_bytes(4, "big") + body for number, body in zip(chosen, sent, strict=True)]


def json_start(body: bytes) -> bytes:
    """What a JSON body begins with: its entity."""
    return body[:10]


def avro_start(body: bytes) -> bytes:
    """What a body in Avro begins with: the length of its entity, and that."""
    return body[: body[0] // 2 + 1] if body else b""


def registered_start(body: bytes) -> bytes:
    """The same behind a number."""
    return avro_start(body[5:])


def send(hub: LogHub, sent: Sequence[bytes], start: Callable[[bytes], bytes] = json_start) -> None:
    """Each entity's events go to one partition; what has none goes anywhere."""
    for body in sent:
        found = start(body)
        hub.send([Event(body)], partition=str(sum(found) % len(hub.partition_ids())))


def contents(folder: Path) -> Mapping[str, list[Any]]:
    """All rows of the table and of its rejected rows, but for what names owners and times of their own."""
    with closing(sqlite3.connect(folder / "entities.db")) as connection:
        rows = connection.execute('SELECT * FROM flights ORDER BY "id", "sequenceNumber"').fetchall()
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(flights)")]
        rejected = connection.execute(
            'SELECT "partition", sequence_number, reason, CAST(body AS BLOB) FROM flights_rejected ORDER BY 1, 2'
        ).fetchall()
    return {"columns": columns, "rows": rows, "rejected": rejected}


def contents_of(folder: Path) -> Any:
    """Rows without the times of the hub, which each folder has of its own."""
    try:
        found = contents(folder)
    except sqlite3.OperationalError:  # it is not made yet
        return None
    told = found["columns"].index("told")
    rows = [row[:told] + row[told + 1 :] for row in found["rows"]]
    rejected = [(*place, re.sub(rb'"told":"[^"]*"', b"", body)) for *place, body in found["rejected"]]
    return found["columns"], rows, rejected
