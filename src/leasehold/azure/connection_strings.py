"""Where the connection string of an Azure namespace is found: one rule for Event Hubs and Service Bus.

Owns the order in which a URL's options and the environment are asked. Promises that no error shows what was found.
Refuses to guess: a string for another namespace does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leasehold.environment import secret_from
from leasehold.errors import ConfigError


@dataclass(frozen=True)
class Strings:
    """What differs between the services: how their connection strings are found, read and named in errors."""

    service: str
    variable: str
    """The environment variable that is asked last, and counts if it is for the namespace."""
    kind: str
    """What a string may be for within its namespace: a hub, or a queue."""
    entity_of: Callable[[str], str | None]
    """The name of that in a string, None where it is for the whole namespace; raises `ValueError` or `TypeError`."""


def checked_connection_string(
    options: Mapping[str, str], environment: Mapping[str, str], strings: Strings, *, namespace: str, entity: str
) -> str | None:
    """The connection string for a hub or queue of a namespace, None where there is none.

    It is the option `connection_string`, else in the variable that `connection_string_env` names, else in
    `strings.variable`, if what is there is for `namespace`. Raises `ConfigError` that shows nothing of it, also where
    the string itself was given as the name of a variable, and where it is for something else.
    """
    stated = _stated(options, environment, strings, namespace)
    if stated is None:
        return None
    string, where = stated
    try:
        found = strings.entity_of(string)
    except (ValueError, TypeError):
        rule = f"{where} holds no connection string of {strings.service}"
        hint = "Copy it from the portal: Endpoint=sb://…;SharedAccessKey=…"
        raise ConfigError(strings.kind, None, rule, hint) from None
    if endpoint_of(string) != namespace.lower():
        rule = f"{where} is for the namespace {endpoint_of(string)}"
        raise ConfigError(strings.kind, namespace, rule, "Make them agree")
    if found and found.lower() != entity.lower():
        raise ConfigError(strings.kind, entity, f"{where} is for the {strings.kind} {found}", "Make them agree")
    return string


def _stated(
    options: Mapping[str, str], environment: Mapping[str, str], strings: Strings, namespace: str
) -> tuple[str, str] | None:
    if "connection_string" in options:
        return options["connection_string"], "the option connection_string"
    if name := options.get("connection_string_env"):
        if re.fullmatch(r"\w+", name) is None:
            rule = "the name of an environment variable, in letters, digits and _; what is there is not shown"
            raise ConfigError("connection_string_env", None, rule, "Put the string into a variable, and name that")
        named = secret_from(environment, name)
        if named is None:
            shown = name if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) else None  # else it may be a key, by mistake
            rule = "no environment variable of this name is set, nor one with _FILE behind it"
            raise ConfigError("connection_string_env", shown, rule, f"Set it to the {strings.kind}'s connection string")
        return named, f"the environment variable {name}"
    string = secret_from(environment, strings.variable) or ""
    is_for_it = endpoint_of(string) == namespace.lower()
    return (string, f"the environment variable {strings.variable}") if is_for_it else None


def endpoint_of(string: str) -> str:
    """The host of the namespace that a connection string is for, in lower case; empty where it names none."""
    found = re.search(r"(?:^|;)\s*Endpoint\s*=\s*[a-z]+://([^;/]+)", string, re.IGNORECASE)
    return found[1].lower() if found else ""
