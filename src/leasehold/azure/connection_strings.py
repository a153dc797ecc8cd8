"""Where the connection string of an Azure namespace is found: one rule for Event Hubs and Service Bus.

Owns the order in which a URL's options and the environment are asked. Promises that no error shows what was found.
Refuses to guess: a string for another namespace does not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from leasehold.environment import secret_from
from leasehold.errors import ConfigError


def connection_string(
    options: Mapping[str, str], environment: Mapping[str, str], *, variable: str, namespace: str, whose: str
) -> tuple[str, str] | None:
    """The connection string of an Azure namespace, and where it was found; None where there is none.

    It is the option `connection_string`, else in the variable that `connection_string_env` names, else in `variable`,
    if what is there is for `namespace`. `whose` says in errors what it should be the connection string of. Raises
    `ConfigError` that shows nothing of it, also where the string itself was given as the name of a variable.
    """
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
            raise ConfigError("connection_string_env", shown, rule, f"Set it to the {whose}'s connection string")
        return named, f"the environment variable {name}"
    string = secret_from(environment, variable) or ""
    return (string, f"the environment variable {variable}") if endpoint_of(string) == namespace.lower() else None


def endpoint_of(string: str) -> str:
    """The host of the namespace that a connection string is for, in lower case; empty where it names none."""
    found = re.search(r"(?:^|;)\s*Endpoint\s*=\s*[a-z]+://([^;/]+)", string, re.IGNORECASE)
    return found[1].lower() if found else ""
