"""A micro-batch from the log to a Postgres table by the loop of `leasehold run`, the server on the same machine.

Once the rows come through the driver, and once Spark's tasks stage them. Stores are in SQLite both times. The first
batches of each are not counted.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from leasehold.cli.demo.command import PIPELINE
from leasehold.spark import open_session
from loop import WARM, Row, fill, speed_of_loop

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.stores.servers import PostgresServer

SIZES = {2_000: "", 10_000: "", 25_000: "", 100_000: "90,000"}
_NEVER = 1_000_000_000


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)  # Postgres' own user must get in, where this one is root
        server = PostgresServer(path)
        spark = open_session("bench postgres table", {"spark.driver.memory": "2g"}, "local[2]")
        try:
            for size, goal in SIZES.items():
                batches = WARM + (2 if quick else 5 if size == 100_000 else 12)
                speeds = {}
                for way, stage_from in (("driver", _NEVER), ("staged", 0)):
                    place = path / f"{size}-{way}"
                    place.mkdir()
                    fill(place, size * batches)
                    text = PIPELINE.replace("sqlite:///entities.db", server.url)
                    text = text.replace('"flights"\nkeys', f'"flights_{size}_{way}"\nstage_from = {stage_from}\nkeys')
                    speeds[way] = speed_of_loop(spark, place, size, text)
                ratio = speeds["staged"] / speeds["driver"]
                rows.append((f"through the driver, {size:,} a batch", speeds["driver"], "events/s", None, ""))
                rows.append((f"staged by the tasks, {size:,} a batch", speeds["staged"], "events/s", ratio, goal))
        finally:
            spark.stop()
            server.end()
    return rows
