"""What the documentation points at is there: files, sections, and the rooms that CONTRIBUTING names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from leasehold.cli.app import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "bench" / "README.md"]
SOURCE = ROOT / "src" / "leasehold"


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


def test_the_rooms_of_contributing_are_there_and_no_other() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = re.search(r"^## The rooms$(.*?)^\*\*", text, flags=re.MULTILINE | re.DOTALL)
    assert rooms
    named = {name for row in re.findall(r"^\| (`.*?) \|", rooms[1], flags=re.MULTILINE) for name in _names(row)}
    there = {f"{each.name}/" for each in SOURCE.iterdir() if (each / "__init__.py").is_file()}
    there |= {each.name for each in SOURCE.glob("*.py") if not each.name.startswith("_")}
    named |= set(_names(" ".join(re.findall(r"^\| `pipeline_file\.py` \|.*$", rooms[1], flags=re.MULTILINE))))
    assert named == there
    paths = re.findall(r"`((?:balancing|sinks|ownership|spark|stores|hubs|tests)/[\w/.]+\.py)`", text)
    assert len(paths) > 10
    assert [
        path for path in paths if not (SOURCE / path).exists() and not (ROOT / path).exists() and "NAME" not in path
    ] == []


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md")]
    assert [page for page in pages if f"({page})" not in text] == []


def test_the_page_on_the_command_line_has_every_command() -> None:
    text = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"| `leasehold {name}" not in text] == []


def test_the_readme_shows_as_many_import_contracts_as_there_are() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    shown = re.search(r"^Contracts: (\d+) kept", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert shown
    assert int(shown[1]) == len(contracts)


def _names(row: str) -> list[str]:
    return re.findall(r"`(\w+(?:/|\.py))`", row)
