"""What README and docs show in fences can be read by what it is for: commands, pipeline files, programs.

The tutorial's blocks run as they are written (`test_tutorial.py`), and so do the README's program and those that need
nothing but themselves. Most other blocks name servers that are not here: of those it is held that every command and
option exists, that every pipeline file is taken, and every program is Python.
"""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.pipeline_file import read_pipeline_file
from tests.repository import ROOT
from tests.waiting import PATIENCE, until

PAGES = [ROOT / "README.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
KEYWORDS = {"until", "while", "if", "!", "do", "then"}
"""Words of the shell with a command behind them."""

WHOLE = (
    ("event-hubs.md", "EventHubsServer("),
    ("leases.md", "EntityLeases("),
    ("queues.md", "ServiceBusServer("),
    ("stores.md", 'open_lease_store("memory://docs")'),
    ("stores.md", 'open_store("sqlite:///leasehold.db")'),
    ("table.md", "BodyReader("),
)
"""Programs that need nothing but themselves: the page, and what only this program of it has."""


@dataclass(frozen=True)
class Block:
    """A fence of a page, and the line on which it begins."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            if found[2] in languages:
                yield Block(page, text.count("\n", 0, found.start()) + 1, found[2], textwrap.dedent(found[3]))


def commands(block: Block) -> Iterator[list[str]]:
    """The calls of `leasehold` in a block, each as the shell hands them over; what is behind a redirection stays."""
    text = re.sub(r"<<'(\w+)'\n.*?^\1$", "", block.text, flags=re.MULTILINE | re.DOTALL).replace("\\\n", " ")
    for line in text.splitlines():
        if block.language == "console" and not line.startswith("$ "):
            continue  # what the command before prints
        if "leasehold " not in line:
            continue
        words = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        words.whitespace_split = True
        for ends_part, part in itertools.groupby(words, lambda word: set(word) <= set(";&|<>()") or word in KEYWORDS):
            call = list(part)
            if not ends_part and call[0] == "leasehold":
                yield call[1:]


def parse(words: list[str]) -> None:
    """Read a command line as `leasehold` does, without running it. Raises `click.ClickException` where it cannot."""
    command: click.Command = app
    context = click.Context(app, info_name="leasehold")
    while isinstance(command, click.Group):
        place = next((n for n, word in enumerate(words) if not word.startswith("-")), None)
        if place is None:
            break  # its own options alone, as `leasehold --help`
        below = command.get_command(context, words[place])
        if below is not None:
            words = words[place + 1 :]
        else:
            below = command.get_command(context, "list")  # `leasehold rejected PIPELINE.toml` lists
        if below is None:
            raise click.UsageError(f"there is no command {words[place]!r}")
        command, context = below, click.Context(below, parent=context, info_name=below.name)
    command.make_parser(context).parse_args(list(words))


CALLS = [(block, words) for block in blocks("sh", "console", "bash") for words in commands(block)]


@pytest.mark.parametrize(("block", "words"), CALLS, ids=[f"{block} {' '.join(words[:2])}" for block, words in CALLS])
def test_every_command_and_option_exists(block: Block, words: list[str]) -> None:
    try:
        parse(words)
    except click.ClickException as error:
        pytest.fail(f"{block}: leasehold {shlex.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("block", list(blocks("toml")), ids=str)
def test_every_pipeline_file_is_taken(block: Block, tmp_path: Path) -> None:
    """One that is shown in part is TOML at least."""
    if {"name", "source", "ownership", "transform", "sink"} <= tomllib.loads(block.text).keys():
        file = tmp_path / "pipeline.toml"
        file.write_text(block.text, encoding="utf-8")
        read_pipeline_file(file)


@pytest.mark.parametrize("block", list(blocks("python")), ids=str)
def test_every_program_is_python(block: Block) -> None:
    """Where a program has a gap, the page shows it by "…", as a line or as an argument."""
    for part in re.split(r"^…$", block.text.replace(", …,", ", ...,"), flags=re.MULTILINE):
        ast.parse(textwrap.dedent(part))


@pytest.mark.parametrize(("page", "has"), WHOLE, ids=[f"{page} {has}" for page, has in WHOLE])
def test_a_whole_program_runs_as_it_is_written(
    page: str, has: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an expression with a value behind it, as a comment, has that value."""
    [block] = [each for each in blocks("python") if each.page.name == page and has in each.text]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for statement in ast.parse(block.text).body:
        code = ast.get_source_segment(block.text, statement)
        assert code is not None
        if isinstance(statement, ast.Expr):
            value = eval(code, names)  # noqa: S307 -- what the page says
            comment = block.text.splitlines()[statement.lineno - 1].partition("  # ")[2]
            if comment.startswith(("[", "{")):
                assert value == ast.literal_eval(comment)
        else:
            exec(code, names)  # noqa: S102 -- what the page says


def test_the_program_of_the_readme_runs_as_it_is_written(tmp_path: Path) -> None:
    [block] = [each for each in blocks("python") if each.page.name == "README.md"]
    with closing(LogHub.create(tmp_path / "flights.db", partitions=4)) as hub:
        hub.send(Event(b'{"flight": "UA%d", "delay": 1.5}' % n, partition_key=f"UA{n}") for n in range(100))
    program = subprocess.Popen([sys.executable, "-c", block.text], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: rows(tmp_path / "entities.db") == 100 or program.poll() is not None, "the table", 3 * PATIENCE)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=3 * PATIENCE)
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0, said
    assert rows(tmp_path / "entities.db") == 100


def rows(database: Path) -> int:
    """How many rows the table has; 0 as long as there is none."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'flights'").fetchall():
            return 0
        [(count,)] = connection.execute("SELECT count(*) FROM flights").fetchall()
        return int(count)


def test_there_are_as_many_as_there_should_be() -> None:
    assert len(CALLS) > 40
    assert len(list(blocks("python"))) > 25
    assert len(list(blocks("toml"))) > 6


def test_a_command_that_is_not_there_is_found() -> None:
    for words in (["no-such"], ["status", "x.toml", "--no-such"], ["checkpoints", "no-such"], ["--no-such"]):
        with pytest.raises(click.ClickException):
            parse(words)
