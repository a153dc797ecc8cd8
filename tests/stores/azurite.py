"""Azurite, the tests' Azure Storage: installed once, started for a session, on free ports of this host.

Owns its processes and ends them by their process id. The install goes beside the interpreter (`sys.prefix`), by
`tests.node_packages`. Where Azurite cannot be installed
or started, tests are skipped on a person's machine and fail where the environment says CI.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient

from tests.node_packages import install, node
from tests.ports import free_port

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

    def __init__(self) -> None:
        self._ports = {"blob": free_port(), "queue": free_port(), "table": free_port()}
        self._process: subprocess.Popen[str] | None = None
        self._drain: threading.Thread | None = None

    def start(self) -> None:
        ports = [word for service, port in self._ports.items() for word in (f"--{service}Port", str(port))]
        script = installed() / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
        self._process = subprocess.Popen(
            [str(node()), str(script), *_OPTIONS, *ports],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout
        said = ""
        for line in self._process.stdout:
            said += line
            if len(re.findall(r"successfully listening", said)) == len(self._ports):
                break
        else:
            raise RuntimeError(f"Azurite did not start:\n{said}")
        # It stops when the pipe is full.
        self._drain = threading.Thread(target=self._process.stdout.read, daemon=True)
        self._drain.start()

    def stop(self) -> None:
        """End the process at once: what it holds in memory is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._drain is not None:
                self._drain.join(10)
            if self._process.stdout:
                self._process.stdout.close()
            self._process = None

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


def started() -> Azurite:
    """A server that runs; else the test that asks for it is skipped, or fails where CI says so."""
    server = Azurite()
    try:
        server.start()
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        server.stop()
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Azurite: {error}")
    return server


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """Azurite, for all tests of a process. Each of them makes a container, a table or a group of its own."""
    server = started()
    yield server
    server.stop()
