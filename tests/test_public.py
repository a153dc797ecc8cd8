"""The public names: one page lists them, `__all__` says the same, and an import that needs nothing but Python."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import leasehold
import leasehold.errors
import leasehold.notices
from tests.repository import ROOT

PAGE = ROOT / "docs" / "reference" / "README.md"
MADE_BY_LEASEHOLD = {"EventBatch", "MicroBatch", "PartitionClient", "PartitionContext", "Piece", "Unseen", "Faults"} | {
    *("AsyncEntityLease", "AsyncLossSignal", "EntityLease", "LossSignal"),
}
"""Public classes that users are given and do not make: their constructors are internal."""

ALONE = """
import sys

class Others:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != "leasehold" and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{name} is not there", name=name)

sys.meta_path.insert(0, Others())
import leasehold
print(leasehold.__version__)
"""


def listed() -> dict[str, set[str]]:
    """The names on the page by module. The front door has every error and notice, which have sections of their own."""
    sections = re.split(r"^## `([a-z_.]+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    names = {
        module: set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))
        for module, text in zip(sections[::2], sections[1::2], strict=True)
    }
    names["leasehold"] |= names["leasehold.errors"] | names["leasehold.notices"]
    return names


PUBLIC = listed()


@pytest.mark.parametrize("name", PUBLIC)
def test_the_page_lists_what_a_public_module_has(name: str) -> None:
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [each for each in module.__all__ if not hasattr(module, each)] == []
    assert sorted(module.__all__) == sorted(PUBLIC[name])


def test_the_names_of_the_front_door_are_sorted() -> None:
    names = leasehold.__all__
    assert list(names) == sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))


@pytest.mark.parametrize(
    ("module", "base"), [(leasehold.errors, leasehold.LeaseholdError), (leasehold.notices, leasehold.Notice)]
)
def test_every_error_and_every_notice_is_public(module: ModuleType, base: type) -> None:
    there = {name for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, base)}
    assert there - set(module.__all__) == set()


def examples() -> Iterator[tuple[str, str]]:
    """The programs that users are shown: those of `examples`, and what README and docs have in fences."""
    for file in sorted((ROOT / "examples").glob("*.py")):
        yield file.name, file.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", ROOT / "testkit" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for fence in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            yield page.name, fence


def imported(program: str) -> Iterator[tuple[str, str]]:
    """From which of our modules a program imports which names. It need not be a whole program: some have gaps."""
    for module, names in re.findall(r"^ *from (leasehold[\w.]*) import (\([^)]*\)|.*)$", program, re.MULTILINE):
        for name in re.sub(r"#.*|[()]", "", names).split(","):
            if name.strip():
                yield module, name.split()[0]
    yield from ((module, "") for module in re.findall(r"^ *import (leasehold[\w.]*)", program, re.MULTILINE))


def test_what_users_are_shown_imports_public_names_only() -> None:
    shown = [(place, *pair) for place, program in examples() for pair in imported(program)]
    assert len(shown) > 20
    assert [each for each in shown if each[1] not in PUBLIC or (each[2] and each[2] not in PUBLIC[each[1]])] == []


def functions_and_constructors() -> Iterator[tuple[str, Any, str]]:
    for module in PUBLIC:
        for name in sorted(PUBLIC[module]):
            it = getattr(importlib.import_module(module), name)
            if inspect.isfunction(it):
                yield f"{module}.{name}", it, inspect.getdoc(it) or ""
            elif inspect.isclass(it) and name not in MADE_BY_LEASEHOLD and not name.endswith("Contract"):
                plain = not dataclasses.is_dataclass(it) and not getattr(it, "_is_protocol", False)
                if plain and "__init__" in vars(it) and not issubclass(it, enum.Enum | BaseException):
                    yield f"{module}.{name}", it, inspect.getdoc(it) or ""


def test_docstrings_of_public_functions_and_constructors_name_every_argument() -> None:
    left_out = []
    for place, it, text in functions_and_constructors():
        for argument in inspect.signature(it).parameters:
            if not argument.startswith("_") and not re.search(rf"\b{argument}\b", text):
                left_out.append(f"{place}: {argument}")
    assert left_out == []


def test_leasehold_is_imported_with_the_standard_library_alone() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", ALONE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == leasehold.__version__
