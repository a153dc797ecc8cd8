"""What the contracts of stores share: groups that nobody else uses, names that are hard to keep apart, and threads."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from leasehold.model import ConsumerGroup

HOSTILE_NAMES = (
    *("0", "00", "1", " 1", "1 ", "1.0", "1e0", "-1"),
    *("name", "Name", "NAME", "nAme", "na me", "na\tme", "na\nme"),
    *("é", "e\u0301", "É", "ß", "ss", "İ", "i", "\u0131", "Å", "\u212b", "日本", "😀", "\u202eabc", "a\u200bb"),
    *("%", "%%", "_", "*", "?", "[a-z]", "a%25", "a%2F", "a/b", "a//b", "/a", "a\\b", "a:b", "a::b", "a|b", "a#b"),
    *("'", "''", '"', "`", "; DROP TABLE leasehold_ownership; --", "' OR '1'='1", "$1", ":p", "{p}", "%(p)s", "\\x00"),
    *("null", "NULL", "None", "true", "$Default", "..", "."),
    *("x" * 200 + end for end in ("", "a", "b")),
)
"""Names that differ, however little: no two of them may meet in one record."""

LARGEST = 2**63 - 1
"""The highest sequence number and owner level that a record must be able to carry."""

WAITED = 60.0
"""Seconds that no call takes whose time-out is a second, on however busy a machine: it has waited for its backend."""

T = TypeVar("T")


def new_group(name: str = "$Default") -> ConsumerGroup:
    """A group that no other test uses."""
    return ConsumerGroup("tests.example", secrets.token_hex(8), name)


WORDS = ("a", "A", "aa", "a/b", "b", "b/b", "a b", "a_b", "a%b", "á")
"""The parts of groups that are hard to keep apart."""

FEWER_WORDS = ("a", "A", "b", "a/b", "a b")
"""Such parts for stores to which each record is a request of its own."""


def groups_alike(words: Sequence[str] = WORDS) -> list[ConsumerGroup]:
    """Groups that differ in namespace, hub or name alone, also where these parts run into one another."""
    mark = secrets.token_hex(8)
    return [ConsumerGroup(f"{mark}{one}", two, three) for one, two, three in itertools.product(words, repeat=3)]


def same(first: Iterable[Hashable], second: Iterable[Hashable]) -> bool:
    """Whether both hold the same, in whatever order."""
    return Counter(first) == Counter(second)


def at_once(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Run every job in a thread of its own, all released at the same moment; return what they returned."""
    barrier = threading.Barrier(len(jobs))

    def run(job: Callable[[], T]) -> T:
        barrier.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


@contextmanager
def ending_by_itself() -> Iterator[None]:
    """Fail if the block outlasts a time-out of at most a second so much that something else must have ended it."""
    deadline = time.monotonic() + WAITED
    yield
    assert time.monotonic() < deadline, "the call waited for its backend, and not for its time-out"
