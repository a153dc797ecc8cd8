"""What this process's environment says: secrets, the files that may hold them, and the mode of files that are made.

Owns the rule `NAME` or `NAME_FILE`: what a platform mounts as a file (Kubernetes, Docker, systemd) is read from there,
and then is in no environment that `ps` or a crash report shows. Refuses both at once, and a file that cannot be what
was meant, by the variable's name. Promises that no error shows what a variable or a file holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from leasehold.errors import ConfigError

FILE = "_FILE"
"""What is put behind a variable's name to name the file with its value."""

MODE = "LEASEHOLD_FILE_MODE"
"""The variable that names another mode than 600."""

LARGEST = 65_536
"""The most bytes of such a file."""


def secret_from(environment: Mapping[str, str], name: str) -> str | None:
    """The value of the variable `name`, or what the file holds that `name_FILE` names; None where neither is set.

    One line end behind the value is not part of it. Raises `ConfigError`.
    """
    stated, path = environment.get(name), environment.get(name + FILE)
    if not path:
        return stated
    if stated:
        raise ConfigError(name + FILE, path, f"{name} is set as well", "Keep one of the two")
    return _read(Path(path), name + FILE)


def file_mode(environment: Mapping[str, str]) -> int | None:
    """The mode of database files that are made, from `LEASEHOLD_FILE_MODE` in octal digits; None where it is not set.

    Raises `ConfigError` for what is not a mode, or one with which the owner could not read and write the file.
    """
    stated = environment.get(MODE)
    if not stated:
        return None
    if not re.fullmatch(r"0?[0-7]{3}", stated) or int(stated, 8) & 0o600 != 0o600:
        raise ConfigError(
            MODE, stated, "a mode in three octal digits, in which the owner reads and writes", "As in 640"
        )
    return int(stated, 8)


def _read(path: Path, variable: str) -> str:
    remedy = "Name a file that this user may read, with the secret and nothing else in it"
    try:
        with path.open("rb") as file:
            held = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no path"
        raise ConfigError(variable, str(path), f"the file cannot be read ({why})", remedy) from None
    if len(held) > LARGEST:
        raise ConfigError(variable, str(path), f"the file has more than {LARGEST:,} bytes", remedy)
    try:
        value = held.decode()
    except UnicodeDecodeError:
        raise ConfigError(variable, str(path), "the file is not UTF-8", remedy) from None
    value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise ConfigError(variable, str(path), "the file is empty", remedy)
    return value
