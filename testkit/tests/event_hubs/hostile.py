"""Hostile streams: what a client has sent, changed at random. The seed of `chance` is the bug report."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable

from leasehold_testkit.emulators.amqp.frames import AMQP_HEADER


def cut(data: bytes) -> list[bytes]:
    """A valid stream as its headers and frames."""
    parts, at = [], 0
    while at < len(data):
        size = 8 if data.startswith(b"AMQP", at) else int.from_bytes(data[at : at + 4], "big")
        parts.append(data[at : at + size])
        at += size
    return parts


INTERESTING = (0x00, 0x01, 0x40, 0x45, 0x53, 0x7F, 0x80, 0xA1, 0xB0, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0xFF)


def flip(chance: random.Random, part: bytes) -> bytes:
    changed = bytearray(part)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def replace(chance: random.Random, part: bytes) -> bytes:
    changed = bytearray(part)
    changed[chance.randrange(len(changed))] = chance.choice(INTERESTING)
    return bytes(changed)


def number(chance: random.Random, part: bytes) -> bytes:
    at = chance.randrange(len(part))
    value = chance.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(part)))
    return part[:at] + value.to_bytes(4, "big") + part[at + 4 :]


def shorten(chance: random.Random, part: bytes) -> bytes:
    return part[: chance.randrange(len(part))]


def reframe(chance: random.Random, part: bytes) -> bytes:
    """Change the body and put the right size before it, so that it gets beyond the framing."""
    body = chance.choice((flip, replace, number, shorten))(chance, part[8:] or b"\x00")
    return (8 + len(body)).to_bytes(4, "big") + part[4:8] + body


def repeat(chance: random.Random, part: bytes) -> bytes:
    return part * chance.choice((2, 3, 20))


def noise(chance: random.Random, part: bytes) -> bytes:
    return chance.randbytes(chance.randrange(1, 40))


CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(flip, replace, number, shorten, reframe, reframe, reframe, reframe, repeat, noise),
)


class Hostile:
    """Valid streams of a client, each without what a server would have said, to be changed."""

    def __init__(self, streams: Iterable[bytes]) -> None:
        self._parts = [cut(stream) for stream in streams]
        self._all = list(itertools.chain(*self._parts))

    def stream(self, chance: random.Random) -> list[bytes]:
        """A stream in which one part, or a few, are not as they were."""
        parts = self._excerpt(chance, chance.choice(self._parts))
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            at = chance.randrange(len(parts))
            change = chance.choice((*CHANGES, None))
            parts[at] = chance.choice(self._all) if change is None else change(chance, parts[at] or b"\x00")
        if chance.random() < 0.1:
            del parts[chance.randrange(len(parts))]
        return parts

    def _excerpt(self, chance: random.Random, parts: list[bytes]) -> list[bytes]:
        """Mostly a few parts of a stream behind its opening, without a login: cheaper, and in orders of no client."""
        opens = parts.index(AMQP_HEADER)
        begun = opens + 3
        if chance.random() < 0.2:
            return list(parts)
        first = chance.randrange(begun, len(parts))
        return [*parts[opens:begun], *parts[first : first + chance.randrange(1, 7)]]
