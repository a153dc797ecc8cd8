"""How settings are spelled, and which name an unknown one was probably meant to be.

A setting has one name, in Python's spelling; an option of Spark spells it in its own way. Owns the words in which the
nearest name is told, for everything that has names: settings, keys of a file, options and schemes of URLs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from leasehold.errors import ConfigError


def option_name(name: str) -> str:
    """A name as options of Spark spell it: `max_events_per_trigger` becomes `maxEventsPerTrigger`."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def nearest(name: str, names: Iterable[str], *, behind: str = "") -> str:
    """ "Did you mean …?" with the nearest of the known names, in any case of letters, and `behind` after it.

    Empty where no known name is near.
    """
    by_lower = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f"Did you mean {by_lower[close[0]]}{behind}?" if close else ""


@contextmanager
def naming(named: Callable[[str], str] | str) -> Iterator[None]:
    """Have a `ConfigError` of the block call its setting as `named` makes it of the name, or with `named` before it."""
    try:
        yield
    except ConfigError as error:
        name = f"{named}{error.field}" if isinstance(named, str) else named(error.field)
        raise ConfigError(name, error.value, error.rule, error.remedy) from None
