"""Azurite, the tests' Azure Storage: installed once, started once for all workers, on free ports of this host.

Owns its processes and ends them by their process id. The install goes beside the interpreter (`sys.prefix`), by
`tests.node_packages`. Where Azurite cannot be installed
or started, tests are skipped on a person's machine and fail where the environment says CI.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient

from tests.left_out import failed
from tests.node_packages import install, node
from tests.ports import free_port
from tests.stores.shared import detached, one_for_all, runs
from tests.waiting import until

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key of every Azurite in the world."""

_PACKAGE = {
    "private": True,
    "dependencies": {"azurite": VERSION},
    "overrides": {"applicationinsights": "3.16.0"},  # the version that Azurite asks for fails on Node 22
}
_OPTIONS = (
    *("--inMemoryPersistence", "--extentMemoryLimit", "64", "--skipApiVersionCheck", "--disableTelemetry", "--silent"),
    *("--blobHost", "127.0.0.1", "--queueHost", "127.0.0.1", "--tableHost", "127.0.0.1"),
)


class Azurite:
    """One server. It keeps its ports when it is started again, and forgets everything else."""

    def __init__(self, running: dict[str, Any] | None = None) -> None:
        """One that is to be started; or the one that runs, of which `facts` were told."""
        self._process: psutil.Process | None = None
        if running is None:
            self._ports = {"blob": free_port(), "queue": free_port(), "table": free_port()}
        else:
            self._ports = running["ports"]
            self._process = psutil.Process(running["pid"])

    def start(self) -> None:
        ports = [word for service, port in self._ports.items() for word in (f"--{service}Port", str(port))]
        script = installed() / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
        with tempfile.NamedTemporaryFile() as said:
            self._process = detached([str(node()), str(script), *_OPTIONS, *ports], Path(said.name))
            until(lambda: self._listens(Path(said.name).read_text()), "Azurite to listen")

    def _listens(self, said: str) -> bool:
        assert self._process
        if not runs(self._process):
            raise RuntimeError(f"Azurite did not start:\n{said}")
        return len(re.findall(r"successfully listening", said)) == len(self._ports)

    def stop(self) -> None:
        """End the process at once: what it holds in memory is gone."""
        if (process := self._process) is not None:
            process.kill()
            until(lambda: not runs(process), "Azurite to end")
            self._process = None

    def facts(self) -> dict[str, Any]:
        return {"pid": self.pid, "ports": self._ports}

    def end(self) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def port(self, service: str) -> int:
        return self._ports[service]

    def endpoint(self, service: str) -> str:
        return f"http://127.0.0.1:{self._ports[service]}/{ACCOUNT}"

    @property
    def connection_string(self) -> str:
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint={self.endpoint('blob')};TableEndpoint={self.endpoint('table')};"
        )

    def url(self, scheme: str, place: str) -> str:
        """The URL of a store, with everything that it needs."""
        return f"{scheme}://{ACCOUNT}/{place}?connection_string={quote(self.connection_string, safe='')}"

    def make_container(self, name: str) -> None:
        with BlobServiceClient.from_connection_string(self.connection_string) as service:
            service.create_container(name)

    def make_table(self, name: str) -> None:
        with TableServiceClient.from_connection_string(self.connection_string) as service:
            service.create_table(name)


def installed() -> Path:
    """The folder that Azurite is installed in."""
    return install(f"azurite-{VERSION}", _PACKAGE)


def started(server: Azurite | None = None) -> Azurite:
    """A server that runs; else the test that asks for it is skipped, or fails where CI says so."""
    server = server or Azurite()
    try:
        server.start()
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        server.stop()
        failed(f"no Azurite: {error!r}")
    return server


@contextmanager
def azurite_for_all() -> Iterator[Azurite]:
    """The server that all workers share. Each test makes a container, a table or a group of its own."""
    with one_for_all("azurite", lambda _: started(), lambda _, facts: Azurite(facts)) as server:
        yield server
