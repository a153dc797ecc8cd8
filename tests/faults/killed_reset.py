"""`leasehold reset` that is killed before it calls a method: KIND:METHOD, then the words of the command."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from leasehold.cli.app import app
from leasehold.sinks.transactional import TransactionalSink
from leasehold.stores.sql.store import SqlStore

KINDS: dict[str, Any] = {"store": SqlStore, "sink": TransactionalSink}


def main(step: str, *words: str) -> None:
    kind, _, rest = step.partition(":")
    method, _, time = rest.partition(":")
    calls = [0]
    inner = getattr(KINDS[kind], method)

    def killed(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == int(time or 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*given, **named)

    setattr(KINDS[kind], method, killed)
    app(["reset", *words])


if __name__ == "__main__":
    main(*sys.argv[1:])
