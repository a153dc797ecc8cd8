"""What kinds of values settings have, and how each is read: from text, from Python, and from a pipeline file.

Owns the words in which a value of another kind is refused. A kind looks at one value alone: what contradicts another
setting is refused by the dataclass that carries both. Knows neither hubs nor Spark: a module that does may read a text
in its own way in place of `Kind.text`.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from leasehold.config import parse_duration
from leasehold.errors import ConfigError
from leasehold.model import LATEST, EventPosition, OwnerId, Positions

Read = Callable[[str, str], Any]
"""From a text, and the name for errors, to what the text stands for. Raises `ConfigError`."""


def written(value: Any) -> str:
    """A value as it is written in a pipeline file."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _must(what: str, value: Any) -> ValueError:
    return ValueError(f"must be {what}, not {written(value)}")


def _not_taken(value: Any, name: str) -> Any:
    raise ConfigError(name, value, f"not of a type that it can have: {type(value).__name__}", "Give it as text")


def _key_text(value: Any) -> Any:
    if not isinstance(value, str) or not value:
        raise _must("text that is not empty" if value == "" else f"text, in quotes: {written(str(value))}", value)
    return value


def _as_toml(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # no TOML, or a number of more digits than Python reads
        return text


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of values.

    name   for people
    text   reads the text of an option or of an argument
    value  takes an argument that is not text: as the code uses it, or as the text that stands for it
    key    takes a value of a pipeline file; raises `ValueError` that says what it must be
    set    makes of the text behind `--set KEY=` a value of a pipeline file, which `key` takes or refuses
    """

    name: str
    text: Read
    value: Callable[[Any, str], Any] = _not_taken
    key: Callable[[Any], Any] = _key_text
    set: Callable[[str], Any] = str


# Text


def _text(text: str, name: str) -> str:
    if not text.strip():
        raise ConfigError(name, text, "a text that is not empty", "Give it a value or leave it out")
    return text.strip()


def _owner_name(text: str, name: str) -> str:
    try:
        return OwnerId(text.strip()).name
    except ConfigError as error:
        raise ConfigError(name, text, error.rule, error.remedy) from None


def _key_name(value: Any) -> Any:
    if not re.fullmatch(r"\w[\w.-]{0,99}", _key_text(value)):
        raise ValueError(f"{value!r} must be letters, digits, . _ or -, the first a letter or digit")
    return value


def choice(*words: str) -> Kind:
    """One of these words."""

    def one_of(shown: Callable[[str], str]) -> str:
        return " or ".join(filter(None, (", ".join(map(shown, words[:-1])), shown(words[-1]))))

    def text(word: str, name: str) -> str:
        if word not in words:
            raise ConfigError(name, word, one_of(str), "Give one of them" if words[1:] else "Leave it out")
        return word

    def key(value: Any) -> Any:
        if value not in words:
            raise _must(one_of(repr), value)
        return value

    return Kind(one_of("`{}`".format), text, key=key)


TEXT = Kind("text", _text)
OWNER_NAME = Kind("text", _owner_name)
PIPELINE_NAME = Kind("text", _text, key=_key_name)


# Numbers, flags, durations


def _plain(words: str, text: Read, fits: Callable[[Any], bool], *, least: int | None = None, rule: str = "") -> Kind:
    """A kind of values that stand in a file without quotes. `rule` is told of an argument that is not one."""

    def value(argument: Any, name: str) -> Any:
        if fits(argument) and (least is None or argument >= least):
            return argument
        if not rule:
            return _not_taken(argument, name)
        raise ConfigError(name, argument, rule, "For example 10000")

    def key(argument: Any) -> Any:
        if not fits(argument):
            raise _must(f"{words}, without quotes" if isinstance(argument, str) else words, argument)
        if least is not None and argument < least:
            raise _must("greater than 0" if least else "zero or more", argument)
        return argument

    return Kind(words.removeprefix("a "), text, value, key, _as_toml)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (_is_whole(value) and abs(value) <= sys.float_info.max)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(name, text, "a number", "For example 1.25") from None


def _count(text: str, name: str, rule: str = "a whole number above zero") -> int:
    if not re.fullmatch("0*[1-9][0-9]{0,17}", digits := text.strip()):  # 64 bits hold any number of 18 digits
        raise ConfigError(name, text, rule, "For example 10000")
    return int(digits)


def _flag(text: str, name: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ConfigError(name, text, "true or false", "true is the default")
    return text.strip().lower() == "true"


def _key_duration(value: Any) -> Any:
    if not isinstance(value, str):
        unit = f"{value}s" if _is_number(value) and 0 < value < math.inf else "10s"
        raise ValueError(f'{written(value)} is no duration: write a number and a unit in quotes, for example "{unit}"')
    try:
        parse_duration(value, "")
    except ConfigError:
        raise ValueError(f"{value!r} is not of the form it must have, for example 10s") from None
    return value


NUMBER = _plain("a number", _number, _is_number)
COUNT = _plain("a whole number", _count, _is_whole, least=1, rule="a whole number above zero")
BYTES = replace(COUNT, text=partial(_count, rule="a whole number of bytes above zero"))
LIMIT = _plain("a whole number", _count, _is_whole, least=0, rule="zero or more")
"""A count that may be zero where it is given as a number."""
FLAG = _plain("true or false", _flag, lambda value: isinstance(value, bool))
DURATION = Kind("duration", parse_duration, NUMBER.value, _key_duration)


# Lists


def check_partitions(partitions: Sequence[str], name: str = "partitions") -> tuple[str, ...]:
    """The ids of a fixed share, each once. Raises `ConfigError` for an empty list, and for what is not an id."""
    if not partitions or not all(isinstance(one, str) and one for one in partitions):
        raise ConfigError(name, partitions, "a list of partition ids, which are texts", 'For example ["0", "3"]')
    return tuple(dict.fromkeys(partitions))


def _partitions(text: str, name: str) -> tuple[str, ...]:
    named = [word.strip() for word in text.split(",")]
    if not all(named):
        raise ConfigError(name, text, "partition ids with commas between them", "For example 0,3")
    return check_partitions(named, name)


def _partitions_value(value: Any, name: str) -> Any:
    return check_partitions(value, name) if isinstance(value, Sequence) else _not_taken(value, name)


def _words_value(value: Any, name: str) -> Any:
    texts = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    return ",".join(value) if texts else _not_taken(value, name)


def _key_words(value: Any) -> Any:
    if not isinstance(value, list):
        raise ValueError(f"{written(value)} is no list: write it in brackets, for example [{written(value)}]")
    return tuple(map(_key_text, value))


def _words_set(text: str) -> Any:
    if text.lstrip().startswith("["):
        return _as_toml(text)
    return [part.strip() for part in text.split(",")] if text.strip() else []


WORDS = Kind("list", _text, _words_value, _key_words, _words_set)
PARTITIONS = replace(WORDS, text=_partitions, value=_partitions_value)


# Positions, objects


def _position_value(value: Any, name: str) -> Any:
    if isinstance(value, Positions | EventPosition):
        return value if isinstance(value, Positions) else Positions(value)
    if isinstance(value, datetime) or _is_whole(value):
        return value.isoformat() if isinstance(value, datetime) else str(value)
    rule = "earliest, latest, a sequence number, a time, or an EventPosition"
    raise ConfigError(name, value, rule, "Give one of them")


def _key_position(value: Any) -> Any:
    if isinstance(value, dict):
        return written({partition: str(position) for partition, position in value.items()})
    return _key_text(str(value) if isinstance(value, int) else value)


POSITION = Kind("position", Positions.parse, _position_value, _key_position)
END_POSITION = replace(POSITION, text=partial(Positions.parse, fallback=LATEST))
"""Where reading ends: partitions that are not named are read to their end, as they are where no end is given."""
OBJECT = Kind("object", _not_taken)
"""What only a program can give, and what is handed on as it is."""
