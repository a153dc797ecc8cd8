"""A micro-batch from the log to a Postgres table by the loop of `leasehold run`, the server on the same machine.

Stores are in SQLite. The first batches of each size are not counted. Of the large ones there are also batches with
distinct keys in random order, as in `loop.py`. CPU seconds are those of Python, Java, the workers and the server.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from leasehold.cli.demo.command import PIPELINE
from leasehold.spark import open_session
from loop import DISTINCT, WARM, Row, Speed, fill, fill_distinct, rows_of, speed_of_loop

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.stores.servers import PostgresServer

SIZES = (2_000, 10_000, 25_000, 100_000)


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)  # Postgres' own user must get in, where this one is root
        server = PostgresServer(path)
        spark = open_session("bench postgres table", {"spark.driver.memory": "2g"}, "local[2]")
        try:
            for size in SIZES:
                batches = WARM + (2 if quick else 5 if size == 100_000 else 12)
                sides = {"repeated": fill}
                if size in DISTINCT:
                    sides["distinct"] = fill_distinct
                speeds: dict[str, Speed] = {}
                for side, fill_log in sides.items():
                    place = path / f"{size}-{side}"
                    place.mkdir()
                    fill_log(place, size * batches)
                    text = PIPELINE.replace("sqlite:///entities.db", server.url)
                    text = text.replace('"flights"\nkeys', f'"flights_{size}_{side}"\nkeys')
                    speeds[side] = speed_of_loop(spark, place, size, text, server.facts()["pid"])
                rows += rows_of(f"Postgres, {size:,} a batch", speeds["repeated"])
                if distinct := speeds.get("distinct"):
                    ratio = distinct.events / speeds["repeated"].events
                    rows += rows_of(f"Postgres, {size:,} a batch, distinct keys", distinct, ratio)
        finally:
            spark.stop()
            server.end()
    return rows
