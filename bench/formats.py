"""How fast bodies become columns: JSON, clean and with bad ones, beside Arrow's bare reader; Avro; Protobuf; Debezium.

The bodies are the demo's flights, eleven fields each, in chunks of 10,000, on one core and in one thread. Arrow's own
reader gets them as lines that are joined already, and checks nothing of what the rules ask for. Seconds are the
process's own, since a busy machine only ever adds others; the best of several turns is taken.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from pyarrow import json as arrow_json

from leasehold.cli.demo.data import FlightEvents
from leasehold.formats import BodyFormat, BodyReader
from leasehold.formats.protobuf.schemas import message_type, read_file

Row = tuple[str, float, str, float | None, str]
"""Name, figure, unit, ratio to Arrow's reader, goal."""

_CHUNK = 10_000
_TEXTS = ("flight", "tailnum", "carrier", "origin", "dest", "status")
_TIMES = ("event_time", "sched_dep")
_NUMBERS = ("dep_delay", "arr_delay", "air_time")
SCHEMA = pa.schema(
    [(name, pa.string()) for name in _TEXTS]
    + [(name, pa.timestamp("us", "UTC")) for name in _TIMES]
    + [(name, pa.float64()) for name in _NUMBERS]
)
AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [
        *({"name": name, "type": ["null", "string"]} for name in _TEXTS),
        *({"name": name, "type": {"type": "long", "logicalType": "timestamp-micros"}} for name in _TIMES),
        *({"name": name, "type": ["null", "double"]} for name in _NUMBERS),
    ],
}
PROTO = f"""syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Flight {{
{"".join(f"optional string {name} = {n};" for n, name in enumerate(_TEXTS, 1))}
{"".join(f"google.protobuf.Timestamp {name} = {n};" for n, name in enumerate(_TIMES, 7))}
{"".join(f"optional double {name} = {n};" for n, name in enumerate(_NUMBERS, 9))} }}"""
_ROW = {
    "type": "struct",
    "optional": True,
    "name": "source.app.flights.Value",
    "fields": [
        *({"type": "string", "optional": True, "field": name} for name in _TEXTS),
        *({"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1, "field": name} for name in _TIMES),
        *({"type": "double", "optional": True, "field": name} for name in _NUMBERS),
    ],
}
_CONNECT = {
    "type": "struct",
    "name": "source.app.flights.Envelope",
    "fields": [{**_ROW, "field": "before"}, {**_ROW, "field": "after"}, {"type": "string", "field": "op"}],
}
SOME = pa.schema([SCHEMA.field(name) for name in ("flight", "event_time", "dep_delay")])


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes fewer turns."""
    turns = 3 if quick else 15
    bodies = next(iter(FlightEvents(_CHUNK).tables(_CHUNK))).column("body").to_pylist()
    bare = _rate(lambda: _bare(b"\n".join(bodies)), turns)
    rows: list[Row] = [("bodies: Arrow's reader alone, no checks", bare, "bodies/s", None, "")]
    for name, reader, share, goal in (
        ("all fields", BodyReader(SCHEMA), 0.0, "0.80"),
        ("three fields, the others dropped", BodyReader(SOME), 0.0, ""),
        ("three fields, the others kept", BodyReader(SOME, BodyFormat(rescue="rest")), 0.0, ""),
        ("all fields, 1 % of them bad", BodyReader(SCHEMA), 0.01, ""),
        ("all fields, 10 % of them bad", BodyReader(SCHEMA), 0.1, ""),
    ):
        chunk = pa.array(_spoilt(bodies, share), pa.binary())
        rate = _rate(_reading(reader, chunk), turns)
        rows.append((f"bodies: {name}", rate, "bodies/s", rate / bare, goal))
    avro = BodyFormat(format="avro", writer_schema=json.dumps(AVRO))
    written = pa.array([_in_avro(body) for body in bodies], pa.binary())
    rate = _rate(_reading(BodyReader(SCHEMA, avro), written), turns)
    rows.append(("bodies in Avro, to JSON: all fields", rate, "bodies/s", rate / rows[1][1], "0.90"))
    rate = _rate(_reading(BodyReader(SCHEMA, replace(avro, rescue="rest")), written), turns)
    rows.append(("bodies in Avro, to JSON: with a rescue column", rate, "bodies/s", rate / rows[1][1], ""))
    parsed = parse_schema(AVRO)
    rate = _rate(lambda: [schemaless_reader(io.BytesIO(body.as_py()), parsed, None) for body in written], turns)
    rows.append(("bodies in Avro, to JSON: fastavro alone, to dicts", rate, "bodies/s", rate / rows[1][1], ""))
    message = message_type(read_file(PROTO), None)
    protobuf = BodyFormat(format="protobuf", writer_schema=PROTO)
    written = pa.array([_in_protobuf(body) for body in bodies], pa.binary())
    rate = _rate(_reading(BodyReader(SCHEMA, protobuf), written), turns)
    rows.append(("bodies in Protobuf, to JSON: all fields", rate, "bodies/s", rate / rows[1][1], "0.90"))
    rate = _rate(_reading(BodyReader(SOME, replace(protobuf, rescue="rest")), written), turns)
    rows.append(("bodies in Protobuf, to JSON: three fields, the others kept", rate, "bodies/s", rate / rows[1][1], ""))
    parse = GetMessageClass(message).FromString
    rate = _rate(
        lambda: [[getattr(one, name) for name in SCHEMA.names] for one in map(parse, written.to_pylist())], turns
    )
    rows.append(("bodies in Protobuf, to JSON: the runtime alone, to lists", rate, "bodies/s", rate / rows[1][1], ""))
    changes = BodyReader(SCHEMA, BodyFormat(format="debezium"))
    for name, schema in (("with the schema", True), ("without", False)):
        written = pa.array([_as_change(body, schema=schema) for body in bodies], pa.binary())
        rate = _rate(_reading(changes, written), turns)
        rows.append((f"changes of Debezium in JSON, {name}, to JSON", rate, "bodies/s", rate / rows[1][1], ""))
    return rows


def _as_change(body: bytes, *, schema: bool) -> bytes:
    """The same flight as Debezium writes it: its times are numbers where the schema says so, and text without it."""
    flight = json.loads(body)
    if schema:
        flight |= {name: int(datetime.fromisoformat(flight[name]).timestamp() * 1_000_000) for name in _TIMES}
    source = {"version": "3.6.1.Final", "connector": "postgresql", "lsn": 25585376, "schema": "app", "table": "flights"}
    change = {"before": None, "after": flight, "source": source, "transaction": None, "op": "c", "ts_ms": 1796080050103}
    return json.dumps({"schema": _CONNECT, "payload": change} if schema else change, separators=(",", ":")).encode()


def _in_protobuf(body: bytes) -> bytes:
    """The same flight."""
    stated = {name: value for name, value in json.loads(body).items() if value is not None}
    message = json_format.ParseDict(stated, GetMessageClass(message_type(read_file(PROTO), None))())
    written: bytes = message.SerializeToString()
    return written


def _in_avro(body: bytes) -> bytes:
    """The same flight."""
    flight = json.loads(body)
    times = {name: datetime.fromisoformat(flight[name]) for name in _TIMES}
    out = io.BytesIO()
    schemaless_writer(out, AVRO, {**flight, **times})
    return out.getvalue()


def _reading(reader: BodyReader, chunk: pa.Array) -> Callable[[], object]:
    return lambda: reader.read(chunk)


def _bare(lines: bytes) -> pa.Table:
    return arrow_json.read_json(
        pa.BufferReader(lines),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore"),
    )


def _spoilt(bodies: Sequence[bytes], share: float) -> list[bytes]:
    """The bodies, a share of them cut off, with a text for a number, or with a time that no day has."""
    dice = random.Random(1)
    spoilt = list(bodies)
    for place in dice.sample(range(len(spoilt)), int(share * len(spoilt))):
        body = spoilt[place]
        spoilt[place] = (
            body[:-9],
            body.replace(b'"dep_delay":', b'"dep_delay":"late","was":'),
            body.replace(b'Z","dep_delay"', b'Z+25:00","dep_delay"'),
        )[place % 3]
    return spoilt


def _rate(work: Callable[[], object], turns: int) -> float:
    best = float("inf")
    for _ in range(turns):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return _CHUNK / best
