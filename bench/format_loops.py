"""The same flights as JSON, as Avro and as Protobuf: from the log to tables in SQLite and Postgres, by `leasehold run`.

All in one session, on the same machine, in batches of 25,000; the first ones are not counted, the formats take turns,
and figures are medians. The ratio is to JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa

from flight_bodies import AVRO, PROTO, in_avro, in_protobuf
from leasehold.cli.demo.command import PARTITIONS, PIPELINE
from leasehold.cli.demo.data import FlightEvents
from leasehold.hubs.log.hub import Keyless, LogHub
from leasehold.spark import open_session
from loop import WARM, Row, Speed, in_turns, rows_of, speed_of_loop

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.stores.servers import PostgresServer

_SIZE = 25_000
_WRITERS = {"JSON": None, "Avro": in_avro, "Protobuf": in_protobuf}
_STATED = {
    "JSON": "",
    "Avro": f"format = 'avro'\nwriter_schema = '{json.dumps(AVRO)}'\n",
    "Protobuf": f"format = 'protobuf'\nwriter_schema = '''{PROTO}'''\n",
}


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)  # Postgres' own user must get in, where this one is root
        logs = {name: _filled(path / name, name, _SIZE * (WARM + (2 if quick else 12))) for name in _WRITERS}
        server, numbers = PostgresServer(path), count()
        spark = open_session("bench formats", {"spark.driver.memory": "2g"}, "local[2]")

        def measure(name: str, url: str) -> Speed:
            text = PIPELINE.replace("sqlite:///entities.db", url)
            text = text.replace('"flights"\nkeys', f'"flights_{next(numbers)}"\nkeys')
            text = text.replace("[sink]", f"{_STATED[name]}[sink]")
            return speed_of_loop(spark, logs[name], _SIZE, text, server.facts()["pid"])

        try:
            for database, url in (("SQLite", "sqlite:///entities.db"), ("Postgres", server.url)):
                speeds = in_turns({name: partial(measure, name, url) for name in logs}, quick)
                for name, speed in speeds.items():
                    ratio = None if name == "JSON" else speed.events / speeds["JSON"].events
                    rows += rows_of(f"{database}, bodies in {name}", speed, ratio, "" if ratio is None else "0.90")
        finally:
            spark.stop()
            server.end()
    return rows


def _filled(place: Path, name: str, events: int) -> Path:
    """A folder with a log of flights in this format."""
    place.mkdir()
    hub = LogHub.create(place / "flights-hub.db", partitions=PARTITIONS)
    for table in FlightEvents(events // 2).tables():  # a flight has two events at least
        if write := _WRITERS[name]:
            bodies = pa.array([write(body) for body in table["body"].to_pylist()], pa.binary())
            table = table.set_column(table.schema.get_field_index("body"), "body", bodies)
        hub.send_table(table, keyless=Keyless.ONE_PARTITION)
    hub.close()
    return place


if __name__ == "__main__":
    for line in run("--quick" in sys.argv):
        print(line)
