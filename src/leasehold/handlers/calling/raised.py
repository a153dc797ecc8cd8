"""What a handler has raised, in the texts that are kept of it: also where another process has raised it.

Owns these texts, and the name by which a call that was ended for its time is known, also when it is read from a table.
"""

from __future__ import annotations

import traceback

from leasehold.printable import span

TIMEOUT = "HandlerTimeout"
DIED = "HandlerDied"
_LONGEST_ERROR = 1_000
_LONGEST_TRACEBACK = 20_000


class RaisedElsewhere(Exception):
    """What a handler has raised in another process: its name, the two texts that are kept, and when to try again.

    A call that took too long (`TIMEOUT`), and one whose process has ended in it (`DIED`), are told in the same way.
    """

    def __init__(self, name: str, described: str, traced: str, after: float | None) -> None:
        self.name, self.described, self.traced, self.after = name, described, traced, after
        self.beside = False
        """Whether others went on meanwhile: the call took nobody's time."""
        super().__init__(name, described, traced, after)

    def __str__(self) -> str:
        return self.described.removeprefix(f"{self.name}: ")


class NotCalled(Exception):
    """The handler is not called for this event now: what hung in this batch has taken all the time that there is."""


class GoesOn(NotCalled):
    """The handler is called for this event already, by a process that has not answered yet: its event waits.

    `first`: the call was begun just now, and not at an earlier time.
    """

    def __init__(self, *, first: bool) -> None:
        self.first = first
        super().__init__(first)


def timed_out(seconds: float, traced: str = "") -> RaisedElsewhere:
    """What is kept of a call that was ended after this many seconds, and where it was then."""
    return RaisedElsewhere(TIMEOUT, f"{TIMEOUT}: no answer within {span(seconds)}", text(traced), None)


def died(how: str, traced: str = "") -> RaisedElsewhere:
    """What is kept of a call in which the handler's process ended."""
    return RaisedElsewhere(DIED, f"{DIED}: its process ended {how}", text(traced), None)


def is_timeout(error: BaseException | None) -> bool:
    """Whether a call was ended for its time."""
    return isinstance(error, RaisedElsewhere) and error.name == TIMEOUT


def hung(described: str) -> bool:
    """Whether this text is of a call that was ended for its time."""
    return described.startswith(f"{TIMEOUT}:")


def described(error: BaseException) -> str:
    """An exception in one text, as a row keeps it."""
    if isinstance(error, RaisedElsewhere):
        return error.described
    return text(f"{type(error).__name__}: {error}", _LONGEST_ERROR)


def traced(error: BaseException) -> str:
    """Where an exception came from: the last lines of its traceback."""
    if isinstance(error, RaisedElsewhere):
        return error.traced
    return text("".join(traceback.format_exception(error)))


def name_of(error: BaseException | None) -> str:
    """The name of an exception's class."""
    return error.name if isinstance(error, RaisedElsewhere) else type(error).__name__


def text(words: str, longest: int = _LONGEST_TRACEBACK) -> str:
    """The text as every database takes it: of a traceback the end, of anything shorter the beginning."""
    kept = words[-longest:] if longest == _LONGEST_TRACEBACK else words[:longest]
    return kept.encode(errors="replace").decode()
