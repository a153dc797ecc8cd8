"""Handlers that are called in processes of their own: what they do is said by the event."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from leasehold.handlers.answers import Effects, Emit, Gone, Row
from leasehold.handlers.contract import Delete, EntityEvent, Reject, Retry, Skip, entity
from tests.waiting import NEVER, take, until

STARTED = ["sleep", "1234.5"]
"""The command that the account `starts` has run beside."""


class NoPlainValue:
    """What cannot cross to another process."""


def hang() -> None:
    """Wait for ever, and let nobody interrupt it; a file says so (`timed_calls`)."""
    if "CALLS" in os.environ:
        Path(f"{os.environ['CALLS']}-hanging-{os.getpid()}").touch()
    while True:
        with suppress(BaseException):
            take(NEVER)


@entity(keys=["account"])
def told(state: Any, event: EntityEvent) -> Any:
    """Do what the account's name says, and else keep the numbers of its events. Each call leaves a line in `calls`."""
    with Path(os.environ.get("CALLS", os.devnull)).open("a") as calls:
        calls.write(f"{event.key} {event.sequence_number} {event.delivery} {os.getpid()}\n")
    does = event.key.partition("-")[0]
    if does == "hangs":
        hang()
    if does == "slow":  # until somebody has seen that others went on
        until(Path(os.environ["CALLS"] + "-seen").exists, "somebody who has seen it", NEVER)
    if does == "sleeps":
        take(NEVER)
    if does == "swallows":
        with suppress(BaseException):
            take(NEVER)
    if does == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if does == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if does == "exits":
        sys.exit(3)
    if does == "raises":
        raise ValueError("no good")
    if does == "later":
        raise Retry("not now", after=77)
    if does == "rejects":
        raise Reject("never")
    if does == "starts":  # a program that outlives it, unless it is ended too
        subprocess.Popen(STARTED)
        hang()
    if does == "deletes":
        return Delete()
    if does == "skips":
        return Skip()
    if does == "wrong":
        return {"seen": NoPlainValue()}
    if does == "emits":
        return Effects(
            {"seen": "emitted"},
            [
                Emit(b"\xff", key="k", properties={"a": "b"}),
                Row("lines", {"id": 1, "at": Decimal("1.20")}, keys=["id"]),
                Gone("lines", {"id": 2}),
            ],
        )
    before = state["seen"] + "," if state else ""
    return {"seen": f"{before}{event.sequence_number}"}


@dataclass
class Account:
    account: str
    seen: str


@entity(keys=["account"], state=Account)
def of_a_class(state: Account | None, event: EntityEvent) -> Account:
    return Account(event.key, f"{state.seen}+" if state else "new")
