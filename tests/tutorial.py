"""The blocks of a tutorial, as they are written, in one shell: what is printed has to be what the page shows."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.doc_blocks.fences import missing
from tests.repository import ROOT

FILES = ROOT / "docs" / "tutorial.md"
SERVERS = ROOT / "docs" / "tutorial-kafka-postgres.md"
PAGES = (FILES, SERVERS)
KILLING = (6, 7, 8)
"""The sections of each that `make more` leaves out: two applications run, and one is killed."""


@dataclass(frozen=True)
class Block:
    """Commands of the page, the number of their section, and the lines that the page shows behind them."""

    section: int
    commands: str
    shown: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """The page's blocks, those of the installation apart: the tests run in what it makes."""
    found = []
    for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for commands, shown in re.findall(
            r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, re.MULTILINE | re.DOTALL
        ):
            found.append(Block(int(number), commands, tuple(line for line in shown.splitlines() if line != "…")))
    return [block for block in found if block.section > 1]


def run(chosen: list[Block], folder: Path, programs: Path) -> None:
    """Run the blocks one after the other in one shell, with `programs` before all other commands."""
    script = "".join(f"echo '== block {n}'\n{block.commands}" for n, block in enumerate(chosen))
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    with (folder / "errors").open("w") as errors:
        shell = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = shell.communicate()
        finally:
            if shell.poll() is None or shell.returncode:
                with contextlib.suppress(ProcessLookupError):  # nothing of it is left
                    os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, f"{printed}\n{(folder / 'errors').read_text()}"
    outputs = re.split(r"^== block \d+\n", printed, flags=re.MULTILINE)[1:]
    lacking = [line for block, output in zip(chosen, outputs, strict=True) for line in missing(block.shown, output)]
    assert lacking == [], printed
