"""What a failed query is to be followed by: pure.

Owns the sorting of failures. A *transient* one (a store, hub or database away for a while) restarts the query
for as long as it takes. A *permanent* one stops the instance at once: the same work would fail the same way.
A *lost* one (events of the batch at hand are gone) counts only if that batch is still to be read: others may long
have worked on a batch that is replayed, so it is tried once more without the scratch folder.
Anything else is *unknown*: the query is restarted too, but a batch that keeps failing stops the instance.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from leasehold import errors
from leasehold.errors import LeaseholdError

LONGEST_PAUSE = 30.0
"""Seconds between two restarts of a query, at most."""
_RAISED = re.compile(r"leasehold\.errors\.(\w+): (.*)")


class Kind(StrEnum):
    """What to do about a failure."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Failure:
    """A query's failure: its kind, one line for people, and the ranges of the batch at hand, if there was one."""

    kind: Kind
    message: str
    batch: str = ""


def sort_failure(text: str, raised: BaseException | None, end_offset: str = "") -> Failure:
    """Judge a failure by the error that our sink raised, if it did, else by Spark's text of it.

    Spark hands on errors of the source's processes as text with a traceback: the last error of ours in it is
    the one that was raised.
    """
    batch = describe_ranges(end_offset)
    if isinstance(raised, LeaseholdError):
        return Failure(_kind(type(raised)), str(raised), batch)
    for name, message in reversed(_RAISED.findall(text)):
        found = getattr(errors, name, None)
        if isinstance(found, type) and issubclass(found, LeaseholdError):
            return Failure(_kind(found), message.strip(), batch)
    if raised is not None:
        return Failure(Kind.UNKNOWN, f"{type(raised).__name__}: {raised}", batch)
    first_line = next((line.strip() for line in text.splitlines() if line.strip()), "the query failed without a word")
    return Failure(Kind.UNKNOWN, first_line, batch)


def _kind(error: type[BaseException]) -> Kind:
    if error in errors.TRANSIENT:
        return Kind.TRANSIENT
    if issubclass(error, errors.DataLoss):
        return Kind.LOST
    certain = (errors.UsageError, errors.KeyFromTwoPartitions, errors.OwnerLevelWentBack, errors.EventsMissing)
    return Kind.PERMANENT if issubclass(error, certain) else Kind.UNKNOWN


def describe_ranges(end_offset: str) -> str:
    """The ranges in Spark's text of an end offset: `partition 3 [100, 200), partition 5 [7, 9)`."""
    found = end_offset.find('{"hub"')
    if found < 0:
        return ""
    try:
        ranges = json.JSONDecoder().raw_decode(end_offset[found:])[0]["ranges"]
    except (ValueError, KeyError):
        return ""
    return ", ".join(f"partition {p} [{start}, {end})" for p, (start, end, _) in sorted(ranges.items()) if end > start)


def pause_before_restart(failures: int, chance: float) -> float:
    """Seconds to wait after so many failures in a row; `chance` in [0, 1) spreads instances."""
    return min(LONGEST_PAUSE, 0.5 * 2.0 ** min(failures - 1, 10)) * (0.5 + chance / 2)
