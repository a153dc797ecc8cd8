"""A headless Chromium from npm, which needs nothing of the system, driven by `browser.mjs`.

Owns the process of Node and the browser below it. A page's errors and dialogs are kept, so that a test can say that
there were none.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.node_packages import install, locked, node
from tests.waiting import PATIENCE

CHROMIUM, PUPPETEER = "153.0.0", "25.16.0"
_PACKAGE = {"private": True, "dependencies": {"@sparticuz/chromium": CHROMIUM, "puppeteer-core": PUPPETEER}}
_DRIVER = Path(__file__).with_name("browser.mjs")
_UNPACK = """
const chromium = (await import(process.argv[1])).default;
console.log(await chromium.executablePath());
"""


class Browser:
    """One page of a browser."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, step: str, **more: object) -> Any:
        """Take a step that `browser.mjs` knows; what it answers. Fails with the browser's words."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": step, **more}) + "\n")
        self._process.stdin.flush()
        answer = self.answer()
        assert "failed" not in answer, f"{step} {more}: {answer['failed']}"
        return answer["result"]

    def wait(self, script: str, seconds: float = PATIENCE) -> None:
        """Wait until an expression is true on the page."""
        self.do("wait", script=script, timeout=1000 * seconds)

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        return self.do("run", script=script)

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the browser has ended"
        found: dict[str, Any] = json.loads(line)
        return found


def _unpacked(packages: Path) -> Path:
    """The program of the package, unpacked beside it, once.

    A process that unpacks it may still have it open when it says that it is there, and the system starts no program
    that somebody writes to. So that process has ended before the program is started.
    """
    library = packages / "node_modules" / "@sparticuz" / "chromium" / "build" / "index.js"
    with locked(packages / "lock"):
        done = subprocess.run(
            [str(node()), "--input-type=module", "--eval", _UNPACK, library.as_uri()],
            env={**os.environ, "TMPDIR": str(packages)},  # where it unpacks to, unless it finds itself there
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
    return Path(done.stdout.strip())


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser with an empty page."""
    packages = install(f"chromium-{CHROMIUM}", _PACKAGE)
    process = subprocess.Popen(
        [str(node()), str(_DRIVER), str(packages), str(_unpacked(packages)), "lib/puppeteer/puppeteer-core.js"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        browser = Browser(process)
        assert "Chrome" in browser.answer()["ready"]
        yield browser
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
