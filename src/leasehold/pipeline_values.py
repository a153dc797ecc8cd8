"""Values of a pipeline file that are not in the file: `${VARIABLE}` and `--set KEY=VALUE`.

Owns how a key with dots finds its place, and what `${…}` stands for. Refuses a variable that is not set, by the key
that names it. Promises that an error of the file shows `${VARIABLE}` where it would show what the variable holds.

A variable stands in a value, never in a key, and what it holds is not looked through again. `$${` is `${`; a `$` before
anything else is itself. As everywhere, `VARIABLE_FILE` may name a file with the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leasehold.environment import FILE, secret_from
from leasehold.errors import ConfigError
from leasehold.settings.table import SECTIONS

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

    def concealed(self, value: Any) -> Any:
        """The value with `hidden` texts, those in lists and tables included."""
        if isinstance(value, str):
            return self.hidden(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.concealed(one) for one in value)
        if isinstance(value, dict):
            return {self.concealed(key): self.concealed(one) for key, one in value.items()}
        return value

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(lambda found: self._text(found, key), value)
        if isinstance(value, list):
            places = [f"{key}[{number}]" if isinstance(one, dict) else key for number, one in enumerate(value, 1)]
            return [self._value(one, place) for one, place in zip(value, places, strict=True)]
        if isinstance(value, dict):
            return {name: self._value(one, f"{key}.{name}") for name, one in value.items()}
        return value

    def _text(self, match: re.Match[str], key: str) -> str:
        if match[0] == "$${":
            return "${"
        name = match[1]
        if not match[2] or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
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


def put_over(stated: Document, settings: Mapping[str, str]) -> Document:
    """The document with `settings`, texts by dotted keys, in place of its own values. Raises `ConfigError`.

    A text becomes a value of its key's kind. `[spark]` takes any key, dots included: `spark.spark.ui.enabled`. A key of
    `sink` goes to each `[[sink]]`.
    """
    document = {key: _copied(value) for key, value in stated.items()}
    for key, text in settings.items():
        section, dot, name = key.partition(".")
        if not dot:
            document[key] = text
            continue
        place = document.setdefault(section, {})
        places = place if isinstance(place, list) else [place]
        if not all(isinstance(one, dict) for one in places):
            raise ConfigError(f"--set {key}", None, f"{section} is no section", "Name a key of the pipeline file")
        row = SECTIONS.get(section, {}).get(name)
        for one in places:
            one[name] = text if row is None else row.kind.set(text)
    return document


def _copied(value: Any) -> Any:
    """The value, of which sections and lists of them may be changed."""
    if isinstance(value, list):
        return [_copied(one) for one in value]
    return dict(value) if isinstance(value, dict) else value


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
