"""A task that stages two pieces, says so, and waits to be killed between the second and its receipt."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from leasehold.sinks.batch import Batch
from tests.sinks.events import E, batch
from tests.sinks.staged.staging import StagedSink
from tests.sinks.test_postgres_sink import SPEC


def pieces() -> Iterator[Batch]:
    """Wrong rows of the events 0 and 1, then nothing for ever."""
    yield batch([E("a", "killed", number=0)])
    yield batch([E("b", "killed", number=1)])
    print("staged", flush=True)
    time.sleep(600)


def main(url: str, token: str) -> None:
    stager = StagedSink(url, SPEC).stager()
    assert stager is not None
    stager.stage(token, 0, pieces())


if __name__ == "__main__":
    main(*sys.argv[1:])
