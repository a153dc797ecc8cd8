"""Stores that a test opens, in whatever thread, and that are closed when it ends; and whether they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from leasehold.errors import StoreUnavailable


class _Closable(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=_Closable)


@contextmanager
def closing_all(make: Callable[..., S]) -> Iterator[Callable[..., S]]:
    """Give `make`, and at the end close all that it made.

    A contract opens a hundred stores at once, and a server admits a limited number of connections: none may wait
    for the garbage collector.
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


def answers(call: Callable[[], object]) -> bool:
    """Whether the store behind a call is there: for a wait until one with a short time-out answers again."""
    try:
        call()
    except StoreUnavailable:
        return False
    return True
