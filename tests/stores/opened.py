"""Stores that a test opens, however many and in whatever thread, and that are closed when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

PATIENT = 60.0
"""Seconds: a time-out that no test of correctness runs into, on however slow a disk and busy a machine."""


class _Closable(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=_Closable)


@contextmanager
def closing_all(make: Callable[..., S]) -> Iterator[Callable[..., S]]:
    """Give `make`, and at the end close all that it made.

    A contract opens a hundred stores at once, and a server admits so many connections: none may wait for the garbage
    collector.
    """
    opened: list[S] = []

    def opener(*args: Any, **options: Any) -> S:
        opened.append(make(*args, **options))
        return opened[-1]

    try:
        yield opener
    finally:
        for store in opened:
            store.close()
