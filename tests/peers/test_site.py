"""The documentation's site in a real browser, at the widths of a telephone and of a desk."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.peers.browser import Browser, browsing
from tests.repository import ROOT

pytestmark = pytest.mark.peers

WIDTHS = (400, 1400)
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class _Quiet(SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *arguments: object) -> None:
        """Say nothing of a request."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    """The site's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


def test_no_page_is_wider_than_the_window(browser: Browser, site: str, folder: Path) -> None:
    pages = [str(page.relative_to(folder)) for page in sorted(folder.rglob("*.html"))]
    assert len(pages) > 30
    wide = {}
    for page in pages:
        assert browser.do("goto", url=f"{site}/{page}") in (200, 304)
        for width in WIDTHS:
            browser.do("look", width=width, height=900, theme="light")
            if beyond := browser.do("run", script=TOO_WIDE):
                wide[page, width] = beyond
    assert wide == {}
    assert [each for each in browser.do("said") if each.startswith("error")] == []


def test_the_search_finds_a_section(browser: Browser, site: str) -> None:
    browser.do("look", width=1400, height=900, theme="light")
    browser.do("goto", url=f"{site}/index.html")
    browser.do("wait", script="document.querySelector('[data-md-component=search-query]') !== null", timeout=60_000)
    browser.do("run", script="document.querySelector('[data-md-component=search-query]').focus()")
    browser.do("type", text="OwnerLevelWentBack")
    found = "document.querySelectorAll('.md-search-result__link').length > 0"
    assert browser.do("wait", script=found, timeout=60_000)
