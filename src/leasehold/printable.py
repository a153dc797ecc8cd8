"""Text of others as it may go to a terminal or into a log.

Owns which characters are shown as what they are. What is not printable (control characters with which a terminal can
be told to do something, marks that turn the direction of what follows, invisible characters) is shown as an escape, so
that an owner id, an error or a body can neither hide nor fake a line. How much of such a text is shown. And whether
anybody reads what is printed.
"""

from __future__ import annotations

import json
import logging
import math
import os
import select
import sys
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise

LONGEST = 2_000
"""Characters of a text of others that are shown to people, unless they ask for the whole of it."""
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "s"))  # seconds
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.0  # seconds since 1970: the years 1 and 9999, begin and end


def printable(text: str) -> str:
    """The text on one line, with escapes as Python writes them for what cannot be printed."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_lines(text: str) -> str:
    """As `printable`, for a text of our own that may have several lines: they stay."""
    return "\n".join(map(printable, text.split("\n")))


def shortened(text: str, most: int) -> str:
    """The text, with its end left out and `…` in its place where it has more than this many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def excerpt(text: str) -> str:
    """Text of others as people are shown it: on one line, with its end left out where it is too long to be read."""
    return printable(shortened(text, LONGEST))


def counted(count: int, what: str) -> str:
    """This many of something that takes an s, or es, in the plural: `1 batch`, `2,000 batches`."""
    plural = "es" if what.endswith(("ch", "s", "x")) else "s"
    return f"{count:,} {what}{'' if count == 1 else plural}"


def span(seconds: float) -> str:
    """A length of time as people say it: `0.3 s`, `90 s`, `5 minutes 10 s`, `2 hours`, `6 days 4 hours`, `7 days`.

    A unit is named from two of it on, or where it is exactly one; a second unit only where there is some of it.
    """
    if math.isinf(seconds):
        return "for ever"
    for (unit, name), (smaller, rest_name) in pairwise(_UNITS):
        if seconds >= 2 * unit or seconds == unit:
            whole = int(seconds // unit)
            rest = int(seconds % unit // smaller)
            said = "" if not rest else f" {rest} s" if rest_name == "s" else f" {counted(rest, rest_name)}"
            return counted(whole, name) + said
    digits = f"{seconds:.1f}" if seconds >= 0.1 else f"{seconds:.2g}"
    return f"{digits.removesuffix('.0')} s"


def utc(seconds: float) -> str:
    """A time since 1970 as ISO 8601 text in UTC, to the millisecond, and no earlier and no later than calendars go."""
    at = datetime.fromtimestamp(max(_FIRST, min(seconds, _LAST)), UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text_of(value: object) -> str:
    """`str(value)`; of an object whose text cannot be had, what it is."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - in whosever class
        return f"<{type(value).__name__} without a text: {type(error).__name__}>"


def printable_json(value: object) -> str:
    """A JSON document on one line, with escapes as JSON has them for what cannot be printed.

    What JSON has not, NaN and infinity among it, becomes its text.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, default=text_of, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, default=text_of, allow_nan=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _finite(value: object) -> object:
    """The value with the texts of its numbers that are not finite. `RecursionError` for one that holds itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {_finite(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


class PrintableFormatter(logging.Formatter):
    """A formatter of log records that prints nothing but what can be printed, and lines."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


def nobody_reads_the_output() -> bool:
    """Whether the pipe is broken that this program prints to; a broken connection to a database is a failure."""
    try:
        output = select.poll()
        output.register(sys.__stdout__.fileno(), 0)  # type: ignore[union-attr]  # it may be None, which is no pipe
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))
    except (AttributeError, ValueError, OSError):
        return False


def drop_unread_output() -> None:
    """Before the program ends: what standard output and error still hold goes nowhere where nobody reads it any more.

    Python would complain of it at its end, or make 120 of the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError):  # None, or closed
            continue
        except OSError:
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
