"""The tutorial as it is written: its blocks run in one shell, and print what the page shows."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
LAST_QUICK = 5
"""The last section that `make test` does: from there on two applications run, and one is killed."""


@dataclass(frozen=True)
class Block:
    """Commands of the page, the number of their section, and the lines that the page shows behind them."""

    section: int
    commands: str
    shown: tuple[str, ...]

    def missing(self, printed: str) -> list[str]:
        """The lines that were not printed, in their order; "…" stands for anything."""
        missing, lines = [], iter(printed.splitlines())
        for line in self.shown:
            pattern = ".*".join(re.escape(part) for part in line.split("…"))
            if not any(re.fullmatch(pattern, each.rstrip()) for each in lines):
                missing.append(line)
        return missing


def blocks() -> list[Block]:
    """The page's blocks, those of the installation apart: the tests run in what it makes."""
    found = []
    for number, text in re.findall(r"^## (\d)\. (.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL):
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
    lacking = [line for block, output in zip(chosen, outputs, strict=True) for line in block.missing(output)]
    assert lacking == [], printed


def test_the_page_has_blocks_in_each_section() -> None:
    assert sorted({block.section for block in blocks()}) == [2, 3, 4, 5, 6, 7, 8]


def test_a_file_becomes_a_table(tmp_path: Path) -> None:
    run([block for block in blocks() if block.section <= LAST_QUICK], tmp_path, Path(sys.executable).parent)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_applications_share_the_events_and_one_is_killed(tmp_path: Path) -> None:
    run(blocks(), tmp_path, Path(sys.executable).parent)
