"""Where a page's block runs: a folder of its own, the servers that it names, and a process that it is.

What a reader has in place of the names of a page (`broker-1:9092`, `shop.servicebus.windows.net`) is put into the text,
and nothing else is changed. A block that does not end by itself is interrupted, as by Ctrl-C, when it has done what it
shows.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.waiting import PATIENCE, until

LONG = 3 * PATIENCE
"""Seconds for a block that starts Spark."""
PIPELINE = """
name = "{name}"
[source]
hub = "log:///{name}.db"
[ownership]
store = "sqlite:///leasehold.db"
[transform]
schema = "flight STRING, delay DOUBLE"
sql = "SELECT flight, delay, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "sqlite:///entities.db"
table = "{name}"
keys = ["flight"]
"""
"""A pipeline file with every section that has to be there, and a name."""


class Scene:
    """A folder, what stands in for names of the pages, and environment variables."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.instead: dict[str, str] = {}
        programs = Path(sys.executable).parent
        self.environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        self.printed = ""

    # What is there before

    def send(self, log: str, bodies: Iterable[str], key: Callable[[int], str] = str, partitions: int = 2) -> None:
        """Send these bodies to an embedded log of the folder, which is made if need be."""
        path = self.folder / log
        opened = LogHub(path) if path.exists() else LogHub.create(path, partitions=partitions)
        with closing(opened) as hub:
            hub.send(Event(body.encode(), partition_key=key(n)) for n, body in enumerate(bodies))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self.put(text), encoding="utf-8")

    def put(self, text: str) -> str:
        """The text, with what is here in place of what the page names."""
        for name, here in self.instead.items():
            text = text.replace(name, here)
        return text

    def run_cli(self, *words: str) -> None:
        """A command of `leasehold` that has to succeed."""
        command = [sys.executable, "-m", "leasehold", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    # What it has come to

    def ask(self, sql: str, file: str = "entities.db") -> list[tuple[object, ...]]:
        """The rows of a query; none as long as there is no such table."""
        if not (self.folder / file).exists():
            return []
        with closing(sqlite3.connect(self.folder / file)) as connection, suppress(sqlite3.OperationalError):
            return connection.execute(sql).fetchall()
        return []

    # Processes

    def program(self, text: str, ends: Callable[[], object] | None = None) -> None:
        """Run a program; a value that stands behind an expression as a comment is held against it."""
        self._run([sys.executable, "-c", checking(self.put(text))], ends)

    def shell(self, text: str, ends: Callable[[], object] | None = None, patience: float = LONG) -> None:
        """Run commands in bash, which stops at the first that fails."""
        self._run(["bash", "-e", "-o", "pipefail", "-c", self.put(text)], ends, patience)

    def serve(self, command: str, variable: str) -> None:
        """Start a server of the pages, and export what it prints for its clients, as a reader does."""
        process, output = self._start(["bash", "-c", f"exec {self.put(command)}"], "served.txt")
        until(lambda: "Endpoint=" in output.read_text() or process.poll() is not None, "the server to be there")
        found = re.search(r"Endpoint=[^\s']+", output.read_text())
        assert found is not None, output.read_text()
        self.environment[variable] = found[0]

    def _run(self, command: list[str], ends: Callable[[], object] | None, patience: float = LONG) -> None:
        process, output = self._start(command, "printed.txt")

        def there() -> object:
            self.printed = output.read_text(errors="replace")
            return process.poll() is not None or (ends is not None and ends())

        until(there, f"the block to end, or to come to its end: {command[-1]}", patience)
        interrupted = process.poll() is None
        if interrupted:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(LONG)
        self.printed = output.read_text(errors="replace")
        expected = (0, -signal.SIGINT, 128 + signal.SIGINT) if interrupted else (0,)
        assert process.returncode in expected, self.printed
        assert ends is None or ends(), self.printed

    def _start(self, command: list[str], output: str) -> tuple[subprocess.Popen[bytes], Path]:
        """A process of its own group, which ends with the scene, and the file that has what it prints."""
        path = self.folder / output
        with path.open("w") as written:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
        self.stack.callback(_kill_all, process)
        return process, path


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def checking(program: str) -> str:
    """The program, with an assertion for each expression behind which its value stands as a comment."""
    tree, lines = ast.parse(program), program.splitlines()
    for place, statement in enumerate(tree.body):
        comment = lines[(statement.end_lineno or 1) - 1].partition("  # ")[2]
        if isinstance(statement, ast.Expr) and comment:
            with suppress(ValueError, SyntaxError):
                ast.literal_eval(comment)
                value = ast.parse(comment, mode="eval").body
                compared = ast.Compare(statement.value, [ast.Eq()], [value])
                tree.body[place] = ast.Assert(compared, ast.Constant(f"the page says {comment}"))
    return ast.unparse(ast.fix_missing_locations(tree))
