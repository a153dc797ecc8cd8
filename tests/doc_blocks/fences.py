"""The fences of README, docs and examples: where each is, its language, its text, and what a reader types or sees."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.repository import ROOT

PAGES = [ROOT / "README.md", *(ROOT / each / "README.md" for each in ("deploy", "examples", "testkit"))]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fence of a page, and the line on which it begins."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """The page, as the tables of the tests name it."""
        return str(self.page.relative_to(ROOT)).removeprefix("docs/")

    @property
    def typed(self) -> str:
        """What a reader types: all of it, or what follows the prompts."""
        if self.language != "console":
            return self.text
        return "".join(f"{line[2:]}\n" for line in self.text.splitlines() if line.startswith("$ "))

    @property
    def shown(self) -> list[str]:
        """What the page says that is printed then."""
        return [line for line in self.text.splitlines() if self.language == "console" and not line.startswith("$ ")]

    def __str__(self) -> str:
        return f"{self.name}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    """The fences of these languages, or all. Raises where a page has a fence that does not end."""
    return (each for each in _all() if not languages or each.language in languages)


@cache
def _all() -> list[Block]:
    fences = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = list(_FENCE.finditer(text))
        assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(found), f"{page}: a fence does not end"
        for one in found:
            line = text.count("\n", 0, one.start()) + 1
            fences.append(Block(page, line, one[2], textwrap.dedent(one[3])))
    return fences


def block(name: str, has: str) -> Block:
    """The one fence of a page that has this text."""
    found = [each for each in blocks() if each.name == name and has in each.text]
    assert len(found) == 1, f"{name} has {len(found)} fences with {has!r}"
    return found[0]


def missing(shown: Iterable[str], printed: str) -> list[str]:
    """The lines shown that were not printed, in their order; "…" stands for anything."""
    absent, lines = [], iter(printed.splitlines())
    for line in shown:
        pattern = ".*".join(re.escape(part) for part in line.split("…"))
        if not any(re.fullmatch(pattern, each.rstrip()) for each in lines):
            absent.append(line)
    return absent
