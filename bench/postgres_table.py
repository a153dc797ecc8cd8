"""A micro-batch from the log to a Postgres table by the loop of `leasehold run`, the server on the same machine.

Stores are in SQLite. The first batches of each size are not counted. There are also batches with distinct keys in
random order, as in `loop.py`; and these once more with `sequence_by`, by a column of the table, whose rows count where
no event of a key is remembered, and by an expression with the same values, where no row is looked at. The sides take
turns, each time into a new table, and figures are medians. CPU seconds are those of Python, Java, the workers and the
server.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path

from leasehold.cli.demo.command import PIPELINE
from leasehold.spark import open_session
from loop import Row, Speed, filled, in_turns, rows_of, speed_of_loop

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.stores.servers import PostgresServer

GOALS = {2_000: "", 10_000: "", 25_000: "60,000", 100_000: "85,000"}
"""Of each size of batches: what is to be reached with three events a key, and with distinct keys."""
ORDERS = {"expression": "concat(event_time, '')", "column": "event_time"}
"""What `sequence_by` is, of the sides with distinct keys by time."""


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)  # Postgres' own user must get in, where this one is root
        server, numbers = PostgresServer(path), count()
        spark = open_session("bench postgres table", {"spark.driver.memory": "2g"}, "local[2]")

        def speed(log: Path, size: int, order: str | None = None) -> Speed:
            text = PIPELINE.replace("sqlite:///entities.db", server.url)
            text = text.replace('"flights"\nkeys', f'"flights_{next(numbers)}"\nkeys')
            text += "" if order is None else f'sequence_by = "{order}"\n'
            return speed_of_loop(spark, log, size, text, server.facts()["pid"])

        try:
            for size, goal in GOALS.items():
                logs = filled(path, size, quick)
                sides = {side: partial(speed, log, size) for side, log in logs.items()}
                sides |= {of: partial(speed, logs["distinct"], size, order) for of, order in ORDERS.items()}
                speeds = in_turns(sides, quick)
                loop, distinct = speeds["repeated"], speeds["distinct"]
                rows += rows_of(f"Postgres, {size:,} a batch", loop, goal=goal)
                ratio = distinct.events / loop.events
                rows += rows_of(f"Postgres, {size:,} a batch, distinct keys", distinct, ratio, goal)
                ratio = speeds["column"].events / speeds["expression"].events
                rows += rows_of(f"Postgres, {size:,} a batch, distinct keys by a column", speeds["column"], ratio)
        finally:
            spark.stop()
            server.end()
    return rows
