"""A process that holds one lease again and again, and writes down under which fence it did what.

    python -m tests.stores.lease_program STORE_URL SCOPE NAME LOG DURATION

Each line of LOG (a file of its own) is JSON: the fence, the first and last moment at which the lease was trusted, on
the clock that all processes of this boot share (null: at none, the process was paused before), and how many writes to
the resource were made and refused. The resource is a SQLite file that refuses lower fences, as a user's database would.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from leasehold.clock import SystemClock
from leasehold.errors import LeaseBusy, StoreUnavailable
from leasehold.leases import EntityLeases

WRITE = "UPDATE resource SET fence = :fence, value = value + 1 WHERE fence <= :fence"


def main(url: str, scope: str, name: str, resource: str, log: str, duration: str) -> None:
    clock = SystemClock()
    leases = EntityLeases(url, scope=scope, holder=name, duration=float(duration))
    with closing(sqlite3.connect(resource, timeout=60, isolation_level=None)) as database, Path(log).open("w") as lines:
        print("ready", flush=True)
        while True:
            try:
                with leases.hold("the key", wait=60) as lease:
                    since = until = None
                    written = refused = 0
                    for _ in range(20):
                        now = clock.monotonic()
                        if not lease.lost.is_set():  # so it was held at that moment
                            since, until = since or now, now
                        if database.execute(WRITE, {"fence": lease.fence}).rowcount:
                            written += 1
                        else:
                            refused += 1
                    line = {"fence": lease.fence, "since": since, "until": until, "by": name}
                    print(json.dumps({**line, "written": written, "refused": refused}), file=lines, flush=True)
            except (LeaseBusy, StoreUnavailable):
                continue


if __name__ == "__main__":
    main(*sys.argv[1:])
