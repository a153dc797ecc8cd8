"""Reasons without their values: 783 amounts that are no numbers are one reason, and not 783.

Owns the form of a reason: its fixed text and the column, with `…` where a value stood. What this program writes is read
by its own grammar (`formats.misfits`), so that a column keeps its digits. What SQLite says of a constraint stays as it
is. Of all other text (of Postgres, Spark, handlers and receivers) quoted values and words with a digit are taken for
values; a word without one, as a name in a handler's text, stays, and divides the reason. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from leasehold.printable import shortened

VALUE = "…"
_READ = 2_000
"""Characters of a reason that are looked at."""
_LONGEST = 300
_FIXED = re.compile(
    r"(?:NOT NULL|CHECK|UNIQUE|FOREIGN KEY) constraint failed.*|cannot store \w+ value in \w+ column .*"
    r"|.+ is (?:null or NaN|not UTF-8 text|outside the years 1 to 9999)"
)
_OF_FIELD = re.compile(r"(the field .+?|\S+) is (.*)(, (?:which|a float|a text of which|and the column) .*)")
_INDEX = re.compile(r"\[\d+\]")
_OF_BODY = re.compile(r"(?<=at character )\d+|(?<=: it is ).+(?<!UTF-8)$")
_OTHERS = re.compile(
    r"""(?P<kept>
        \b(?:column|relation|constraint|table|type|index|domain|view|function|schema|to)\ "[^"]*"  # names of databases
        | \b\w+\(\d+(?:,\s*-?\d+)?\) | SQLSTATE:?\ \w+ | `[^`]*`  # lengths of types, codes, names of Spark
    )
    | "(?:[^"\\]|\\.)*" | (?<!\w)'(?:[^'\\]|\\.)*'(?!\w)
    | (?<![\w.+\-:/@%$€])[\w.+\-:/@%$€]*\d(?:[\w.+\-:/@%]*\w)?[%]?""",
    re.VERBOSE,
)
_SEVERAL = re.compile(rf"{VALUE}(?:[\s,]+{VALUE})+")


def form_of(reason: str) -> str:
    """The reason with `…` in place of its values."""
    text = " ".join(reason[:_READ].split())
    if found := _OF_FIELD.fullmatch(text):
        return f"{_INDEX.sub(f'[{VALUE}]', found[1])} is {VALUE}{found[3]}"
    if _FIXED.fullmatch(text):
        return text
    if text.startswith(("the field ", "the key ")):
        return _INDEX.sub(f"[{VALUE}]", text)
    if text.startswith("the body "):
        return _OF_BODY.sub(VALUE, text)
    without = _OTHERS.sub(lambda match: match["kept"] or VALUE, text)
    return shortened(_SEVERAL.sub(VALUE, without), _LONGEST)


@dataclass(slots=True)
class ReasonGroup:
    """What has a reason of this form: how much it is, when the first and the last were set aside (seconds since 1970),
    and a reason as it is, for an example."""

    reason: str
    number: int
    first: float
    last: float
    example: str


class ReasonGroups:
    """Reasons that are counted by their forms."""

    def __init__(self) -> None:
        self.total = 0
        self._groups: dict[str, ReasonGroup] = {}

    def add(self, reason: str, first: float, last: float, number: int = 1) -> None:
        """Count what has this reason."""
        form = form_of(reason)
        self.total += number
        if (group := self._groups.get(form)) is None:
            self._groups[form] = ReasonGroup(form, number, first, last, reason)
            return
        group.number += number
        group.first, group.last = min(group.first, first), max(group.last, last)

    def __iter__(self) -> Iterator[ReasonGroup]:
        """The most frequent first."""
        return iter(sorted(self._groups.values(), key=lambda group: (-group.number, group.reason)))
