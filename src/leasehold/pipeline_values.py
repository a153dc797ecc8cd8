"""Values of a pipeline file: their types, and those that are not in the file, `${VARIABLE}` and `--set KEY=VALUE`.

Owns how a key with dots finds its place, how the text behind it becomes a value of the key's type, what `${…}` stands
for, and what an unknown key was meant to be. Refuses a variable that is not set, by the key that names it. Promises
that an error of the file shows `${VARIABLE}` where it would show what the variable holds.

A variable stands in a value, never in a key, and what it holds is not looked through again. `$${` is `${`; a `$` before
anything else is itself. As everywhere, `VARIABLE_FILE` may name a file with the value.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field

from leasehold.environment import FILE, secret_from
from leasehold.errors import ConfigError


def _as_position(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps({partition: str(position) for partition, position in value.items()})
    return str(value) if isinstance(value, int) else value


def _as_option(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError(
            'must be text, a number, true or false; put a name with dots in quotes: "spark.ui.enabled" = true'
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


Name = Annotated[str, Field(min_length=1)]
Duration = Annotated[str, Field(pattern=r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$", examples=["10s"])]
Position = Annotated[str, BeforeValidator(_as_position)]
Option = Annotated[str, BeforeValidator(_as_option)]
Document = dict[str, Any]

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_SHORTEST = 4
"""Characters of a value that is hidden wherever it is found; a shorter one is hidden where it stands alone."""


@dataclass(slots=True)
class Substituted:
    """Where a document's variables are put in, and what they held."""

    environment: Mapping[str, str] = field(repr=False)
    held: dict[str, str] = field(default_factory=dict, repr=False)

    def document(self, stated: Document) -> Document:
        """The document with the variables of its values put in. Raises `ConfigError` that names the key."""
        return {key: self._value(value, key) for key, value in stated.items()}

    def hidden(self, text: str) -> str:
        """The text with `${VARIABLE}` in the place of what variables hold."""
        for name, value in sorted(self.held.items(), key=lambda one: -len(one[1])):
            shown = f"${{{name}}}"
            for form in dict.fromkeys((value, repr(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])):
                if len(form) >= _SHORTEST:
                    text = text.replace(form, shown)
                elif form:
                    text = re.sub(rf"(?<![\w$]){re.escape(form)}(?!\w)", lambda _, shown=shown: shown, text)  # type: ignore[misc]
        return text

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(lambda found: self._text(found, key), value)
        if isinstance(value, list):
            return [self._value(one, key) for one in value]
        if isinstance(value, dict):
            return {name: self._value(one, f"{key}.{name}") for name, one in value.items()}
        return value

    def _text(self, found: re.Match[str], key: str) -> str:
        if found[0] == "$${":
            return "${"
        name = found[1]
        if not found[2] or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            rule = "${ begins the name of an environment variable, in letters, digits and _, and } ends it"
            raise ConfigError(key, None, rule, "Write $${ for ${ itself")
        value = secret_from(self.environment, name)
        if value is None:
            rule = f"the environment variable {name} is not set"
            raise ConfigError(
                key, None, rule, f"Set {name} or {name}{FILE}, or write $${{{name}}} for ${{{name}}} itself"
            )
        self.held[name] = value
        return value


def put_over(stated: Document, settings: Mapping[str, str], sections: Mapping[str, type[BaseModel]]) -> Document:
    """The document with `settings`, texts by dotted keys, in place of its own values. Raises `ConfigError`.

    A section that has no model takes any key, dots included: `spark.spark.ui.enabled`.
    """
    document = {key: dict(value) if isinstance(value, dict) else value for key, value in stated.items()}
    for key, text in settings.items():
        section, dot, name = key.partition(".")
        if not dot:
            document[key] = text
            continue
        place = document.setdefault(section, {})
        if not isinstance(place, dict):
            raise ConfigError(f"--set {key}", None, f"{section} is no section", "Name a key of the pipeline file")
        place[name] = _typed(text, sections.get(section), name)
    return document


def parse_settings(stated: tuple[str, ...]) -> dict[str, str]:
    """`KEY=VALUE` texts by key. Raises `ConfigError` that shows no value."""
    settings: dict[str, str] = {}
    for one in stated:
        key, equals, text = one.partition("=")
        if not equals or not re.fullmatch(r"\w[\w.-]*", key):
            shown = key if equals and len(key) < 100 and key.isprintable() else None
            raise ConfigError("--set", shown, "a setting is KEY=VALUE", "For example --set sink.table=flights")
        if key in settings:
            raise ConfigError(f"--set {key}", None, "is given twice", "Keep one of them")
        settings[key] = text
    return settings


def _typed(text: str, model: type[BaseModel] | None, name: str) -> Any:
    """The text as a value of the key's type; as it is where it cannot be one, for the check of the whole to refuse."""
    if model is None:
        return text
    info = next((one for key, one in model.model_fields.items() if (one.alias or key) == name), None)
    kinds = [] if info is None else _kinds(info.annotation)
    if not kinds or (str in kinds and tuple not in kinds):
        return text
    if tuple in kinds and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _kinds(annotation: Any) -> list[Any]:
    """The plain types in an annotation."""
    if get_origin(annotation) is tuple:
        return [tuple]
    if get_origin(annotation) is Literal:
        return [str]
    inner = get_args(annotation)
    return [kind for one in inner for kind in _kinds(one)] if inner else [annotation]


def meant(place: tuple[str | int, ...], whole: type[BaseModel], sections: Mapping[str, type[BaseModel]]) -> str:
    """What an unknown key was probably meant to be: a key of its section, or else the section where there is one."""
    *section, key = (str(part) for part in place)
    keys = _keys(sections.get(section[0]) if section else whole)
    if close := difflib.get_close_matches(key, keys, 1):
        return f". Did you mean {close[0]}?"
    elsewhere = [name for name, model in sections.items() if key in _keys(model)]
    return f". It belongs into [{elsewhere[0]}]" if elsewhere else ""


def _keys(model: type[BaseModel] | None) -> list[str]:
    return (
        [] if model is None else [field.alias or name for name, field in model.model_fields.items() if name != "path"]
    )


def of_another_type(key: str, fault: Any, *, duration: bool) -> str:
    """What to write in place of a value whose type is not the key's; `duration`: that of the key is one."""
    kind, given = fault["type"], fault["input"]
    if duration:
        plain = isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < math.inf
        unit = f'"{given}s"' if plain else '"10s"'
        return f"{_toml(given)} is no duration: write a number and a unit in quotes, for example {unit}"
    if kind in ("tuple_type", "list_type"):
        return f"{_toml(given)} is no list: write it in brackets, for example [{_toml(given)}]"
    must = {
        "string_type": f"must be text, in quotes: {_toml(str(given))}",
        "int_type": "must be a whole number, without quotes",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number, without quotes",
        "bool_type": "must be true or false, without quotes",
        "model_type": f"must be a section, [{key}] with its keys below it",
        "dict_type": f"must be a section, [{key}] with its keys below it",
    }.get(kind, fault["msg"].replace("Input should be", "must be"))
    return f"{must}, not {_toml(given)}"


def _toml(value: Any) -> str:
    """A value as it is written in the file."""
    return json.dumps(value, ensure_ascii=False, default=str)
