"""The tables of docs/reference/settings.md, made of the table of settings and of the dataclasses of the processors.

    python -m tests.settings_page

writes them into the page, between its marks `<!-- table: NAME -->` and `<!-- end -->`. A test fails while the page says
something else. All else on the page is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any

from leasehold.processors.events.delivery import DeliverySettings
from leasehold.processors.queues.settings import QueueDelivery
from leasehold.settings.table import (
    ARGUMENT,
    ARGUMENTS,
    KEY,
    OPTION,
    OPTIONS,
    REQUIRED,
    SECTIONS,
    Setting,
    SettingPlace,
    said_of_fields,
)
from tests.repository import ROOT

PAGE = ROOT / "docs" / "reference" / "settings.md"
COMMAND = "python -m tests.settings_page"
_TABLE = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def page(text: str) -> str:
    """The page with its tables as they have to be."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", text)


def _rows(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    names = head.split(", ")
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("| --- ", "|---").replace("|--- |", "|---|")


def _settings(what: str, place: SettingPlace, known: Mapping[str, Setting]) -> str:
    rows = ((f"`{name}`", row.kind.name, _default(row, place), _meaning(row, place)) for name, row in known.items())
    return _rows(f"{what}, type, default, meaning", rows)


def _meaning(row: Setting, place: SettingPlace) -> str:
    """What a setting means, with the names of settings as the place spells them."""
    names = {one.name: name for name, one in OPTIONS.items()} if place is OPTION else {}
    return re.sub(r"`(\w+)`", lambda found: f"`{names.get(found[1], found[1])}`", row.meaning)


def _default(row: Setting, place: SettingPlace) -> str:
    value = row.default_at(place)
    if row.shown and value == row.default:
        return row.shown
    return _value(value, plain=place is OPTION, python=place is ARGUMENT, duration=row.kind.name == "duration")


def _value(value: Any, *, plain: bool = False, python: bool = True, duration: bool = False) -> str:
    """A default as it would be written in its place, numbers and durations as people write them."""
    if value is REQUIRED or value is None:
        return "required" if value is REQUIRED else "none"
    if isinstance(value, bool):
        return f"`{value}`" if python else f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return _seconds(value) if duration else f"{value:,}".removesuffix(".0")
    text = str(value.value if isinstance(value, Enum) else value)
    return f"`{text}`" if plain else f'`"{text}"`'


def _seconds(seconds: float) -> str:
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds and not seconds % length), ("s", 1))
    return f"{seconds / length:g} {unit}"


def _fields(carrier: Any) -> str:
    """The fields of a dataclass, which its docstring explains. Its floats are seconds."""
    said = said_of_fields(carrier)
    return _rows("setting, default, meaning", _of_fields(carrier, said))


def _of_fields(carrier: Any, said: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for one in fields(carrier):
        assert one.default is not MISSING
        yield f"`{one.name}`", _value(one.default, duration=isinstance(one.default, float)), said[one.name]


def _keys() -> str:
    known = {f"{section}.{name}": row for section, rows in SECTIONS.items() for name, row in rows.items()}
    return _settings("key", KEY, {key.removeprefix("."): row for key, row in known.items()})


TABLES: Mapping[str, Callable[[], str]] = {
    "arguments": lambda: _settings("argument", ARGUMENT, ARGUMENTS),
    "options": lambda: _settings("option", OPTION, OPTIONS),
    "keys": _keys,
    "DeliverySettings": lambda: _fields(DeliverySettings),
    "QueueDelivery": lambda: _fields(QueueDelivery),
}

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
