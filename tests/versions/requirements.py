"""What `pyproject.toml` asks for, read from it: requirements of the extras, and the lowest versions they allow."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from tests.repository import ROOT

_PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_OPTIONAL: dict[str, list[str]] = _PROJECT["optional-dependencies"]
EXTRAS = tuple(name for name in _OPTIONAL if name not in ("demo", "docs", "dev"))
"""What users install; the others bring what is here, and tools."""


def required(*extras: str) -> list[Requirement]:
    """What these extras ask for beside the plain package and each other (`leasehold[spark]`)."""
    found = [Requirement(each) for extra in extras for each in _OPTIONAL[extra]]
    return [each for each in found if each.name != _PROJECT["name"]]


def of(names: Iterable[str], *extras: str) -> list[str]:
    """The requirements of these packages, as the extras state them."""
    stated = {each.name: str(each) for each in required(*extras)}
    return [stated[name] for name in names]


def lowest(*without: str) -> list[str]:
    """`name==version` of each dependency of the plain package and its extras, at its lower bound."""
    bounds: dict[str, Version] = {}
    for each in [*map(Requirement, _PROJECT["dependencies"]), *required(*EXTRAS)]:
        [stated] = [Version(one.version) for one in each.specifier if one.operator == ">="]
        bounds[each.name] = max(stated, bounds.get(each.name, stated))
    return [f"{name}=={version}" for name, version in sorted(bounds.items()) if name not in without]
