"""What the documentation points at is there: files, sections, and the rooms that CONTRIBUTING names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.cli.app import COMMANDS
from tests.repository import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [ROOT / folder / "README.md" for folder in ("bench", "deploy", "examples", "testkit")]
SOURCE = ROOT / "src" / "leasehold"
ROOMS = {"The rooms": SOURCE, "The test kit": ROOT / "testkit" / "src" / "leasehold_testkit"}
"""Sections of CONTRIBUTING, and whose rooms each of them names."""
WITHOUT_NEWS = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
"""The environment of a build that prints nothing about other generators."""


def anchors(page: Path) -> set[str]:
    """The names of a page's sections, as the sites that show Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize(("section", "source"), ROOMS.items(), ids=str)
def test_the_rooms_of_contributing_are_there_and_no_other(section: str, source: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = re.search(rf"^##+ {section}$(.*?)^(##|\*\*)", text, flags=re.MULTILINE | re.DOTALL)
    assert rooms
    named = {name for row in re.findall(r"^\| (`.*?) \|", rooms[1], flags=re.MULTILINE) for name in _names(row)}
    there = {f"{each.name}/" for each in source.iterdir() if (each / "__init__.py").is_file()}
    there |= {each.name for each in source.glob("*.py") if not each.name.startswith("_")}
    named |= set(_names(" ".join(re.findall(r"^\| `pipeline_file\.py` \|.*$", rooms[1], flags=re.MULTILINE))))
    assert named == there


def test_the_files_that_contributing_names_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:balancing|sinks|ownership|spark|stores|hubs|tests|testkit)/[\w/.]+\.py)`", text)
    assert len(paths) > 10
    assert [
        path for path in paths if not (SOURCE / path).exists() and not (ROOT / path).exists() and "NAME" not in path
    ] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_installs_is_in_the_checkout(page: Path) -> None:
    """Leasehold is on no package index; what a release does is in CONTRIBUTING."""
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert page.name == "CONTRIBUTING.md" or re.findall(r"pip install (?:-\S+ )*'?leasehold", text) == []


def test_there_are_few_pages() -> None:
    """A page more has to take the place of another one: the reference, the decisions and the tutorials apart."""
    assert len([page for page in (ROOT / "docs").glob("*.md") if not page.stem.startswith("tutorial")]) <= 18


@pytest.mark.more
def test_the_site_is_built_and_every_link_on_it_leads_somewhere(tmp_path: Path) -> None:
    """Strict: a page without a place in the navigation, or a link to no page or no section, is an error.

    With `--quiet` MkDocs counts no warnings, so that nothing is one.
    """
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, env=WITHOUT_NEWS, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stderr.splitlines() if not line.startswith("INFO ")] == []
    commands = (tmp_path / "reference" / "commands.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f'id="leasehold-{name}"' not in commands] == []
    assert "flights.toml" in (tmp_path / "search" / "search_index.json").read_text(encoding="utf-8")
    away = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//')
    assert [page.name for page in tmp_path.rglob("*.html") if away.search(page.read_text(encoding="utf-8"))] == []


def test_the_page_on_the_command_line_has_every_command() -> None:
    text = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"| `leasehold {name}" not in text] == []


def _names(row: str) -> list[str]:
    return re.findall(r"`(\w+(?:/|\.py))`", row)
