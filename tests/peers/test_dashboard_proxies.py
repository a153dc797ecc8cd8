"""The dashboard in a real browser behind real reverse proxies, configured as docs/watching.md says."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.dashboard.serving import Place, serving
from tests.peers.browser import Browser
from tests.peers.debian import environment, unpacked
from tests.ports import free_port
from tests.repository import ROOT
from tests.waiting import until

pytestmark = pytest.mark.peers

TOKEN = "sixteen letters!"  # noqa: S105 -- of a test
PAGE = ROOT / "docs" / "watching.md"


@dataclass(frozen=True)
class Proxy:
    """A program of a Debian package. It serves `url`, with the lines of the docs page in a file of its own."""

    packages: Sequence[str]
    program: str
    url: str
    file: Callable[[Path, str, int], str]
    command: Callable[[Path], list[str]]


def nginx_file(here: Path, lines: str, port: int) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {here}/{kind}; " for kind in kinds)
    return (
        f"daemon off; pid {here}/pid; user root; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port};\n{lines}\n}} }}\n"
    )


def caddy_file(here: Path, lines: str, port: int) -> str:
    options = f"admin off\n  skip_install_trust\n  auto_https disable_redirects\n  storage file_system {here}"
    return f"{{\n  {options}\n}}\n" + lines.replace(
        "ops.example {", f"https://localhost:{port} {{\n  bind 127.0.0.1\n  tls internal"
    )


PROXIES = {
    "nginx": Proxy(
        ("nginx",),
        "usr/sbin/nginx",
        "http://localhost:{port}/leasehold/",  # the path is cut off, and the dashboard's own host is named
        nginx_file,
        lambda file: ["-c", str(file), "-p", str(file.parent), "-e", "stderr"],
    ),
    "caddy": Proxy(
        ("caddy",),
        "usr/bin/caddy",
        "https://localhost:{port}/leasehold/",  # the path is left, and the public host is named
        caddy_file,
        lambda file: ["run", "--adapter", "caddyfile", "--config", str(file)],
    ),
}


def lines_of_the_page(name: str) -> str:
    """What docs/watching.md tells people to write into this proxy's file."""
    found = re.search(rf"```{name}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, f"docs/watching.md has no lines for {name}"
    return found[1]


@contextmanager
def proxying(name: str, to: str, port: int, here: Path) -> Iterator[None]:
    """This proxy, at a port, in front of what serves at `to`."""
    proxy, file, log = PROXIES[name], here / "config", here / "proxy.log"
    folder = unpacked(name, *proxy.packages)
    file.write_text(proxy.file(here, lines_of_the_page(name).replace("127.0.0.1:9466", to), port))
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [folder / proxy.program, *proxy.command(file)],
            env={**environment(folder), "HOME": str(here)},
            stdout=errors,
            stderr=errors,
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.kill()  # at a polite end Caddy waits for the stream
        process.wait()
        shutil.rmtree(here, ignore_errors=True)


@pytest.mark.parametrize("name", PROXIES)
def test_it_is_used_through_a_proxy(tmp_path: Path, name: str, browser: Browser) -> None:
    """The door, the form for the token, the stream, the history and an action, all below the public path."""
    here = tmp_path / "proxy"
    here.mkdir()
    place, port = Place(tmp_path), free_port()
    place.own("0", "blue/1")
    place.park("0", 2, b"body", "RuntimeError", 9e9)
    url = PROXIES[name].url.format(port=port)
    browser.do("goto", url="about:blank")  # the page of another test asks on for its server
    said = browser.do("said")
    with (
        serving(place, "--allow-actions", "--public-url", url, LEASEHOLD_DASHBOARD_TOKEN=TOKEN) as served,
        proxying(name, served.at, port, here),
    ):
        until(lambda: browser.do("reaches", url=url), "the proxy to answer")
        browser.do("goto", url=url.rstrip("/"))
        browser.wait("document.activeElement.tagName === 'INPUT'")
        assert browser.run("location.href") == f"{url}login"
        browser.do("type", text=TOKEN)
        browser.do("press", key="Enter")
        browser.wait("document.querySelector('.parked .acts button')")  # came by the stream
        assert browser.run("location.href") == url
        assert browser.run("fetch('history/flights?window=30m').then((answer) => answer.status)") == 200
        browser.run("document.querySelector('.parked .acts button').click()")
        browser.wait("document.querySelector('.acted').textContent.endsWith('event 2: 1 retried')")
        [cookie] = [one for one in browser.do("cookies", url=url) if str(port) in one["name"]]
        assert (cookie["path"], cookie["httpOnly"]) == ("/leasehold/", True)
        assert cookie["secure"] == url.startswith("https")
        assert browser.do("said") == said
    place.close()
