"""How fast JSON bodies become columns: clean ones, and with bad ones among them, beside Arrow's bare reader.

The bodies are the demo's flights, eleven fields each, in chunks of 10,000, on one core and in one thread. Arrow's own
reader gets them as lines that are joined already, and checks nothing of what the rules ask for. Seconds are the
process's own, since a busy machine only ever adds others; the best of several turns is taken.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import json

from leasehold.cli.demo.data import FlightEvents
from leasehold.formats import BodyReader

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
        ("three fields, the others kept", BodyReader(SOME, rescue="rest"), 0.0, ""),
        ("all fields, 1 % of them bad", BodyReader(SCHEMA), 0.01, ""),
        ("all fields, 10 % of them bad", BodyReader(SCHEMA), 0.1, ""),
    ):
        chunk = pa.array(_spoilt(bodies, share), pa.binary())
        rate = _rate(_reading(reader, chunk), turns)
        rows.append((f"bodies: {name}", rate, "bodies/s", rate / bare, goal))
    return rows


def _reading(reader: BodyReader, chunk: pa.Array) -> Callable[[], object]:
    return lambda: reader.read(chunk)


def _bare(lines: bytes) -> pa.Table:
    return json.read_json(
        pa.BufferReader(lines),
        read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore"),
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
