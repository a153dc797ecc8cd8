"""The hubs that the fault tests are run with: how each is made, reached, fed and taken away.

A `HubKind` is one hub of a test's own, made in its folder. Instances are told its URL and environment, and the test
uses `hub`, a client of its own. Processes that a hub needs are started here, end with it and are never part of what is
killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from unittest import mock

import pyarrow as pa

from leasehold.hubs import Hub, open_hub
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.hubs.kafka_cluster import Cluster

PARTITIONS = 4


class HubKind(Protocol):
    """A hub, as a fleet needs it."""

    hub: Hub
    url: str
    """As a pipeline file in the test's folder names it."""
    environment: Mapping[str, str]
    """What an instance needs beside the URL."""
    one_reader: bool
    """Whether the hub lets nobody read a partition that another reads as its owner."""

    def send(self, partition: str, bodies: Sequence[bytes]) -> None:
        """Append events to a partition."""
        ...

    def away(self) -> contextlib.AbstractContextManager[None]:
        """A block in which nobody reaches the hub."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


class Log:
    """An embedded log in a file."""

    url = "log:///hub.db"
    environment: Mapping[str, str] = {}
    one_reader = False

    def __init__(self, folder: Path, partitions: int = PARTITIONS) -> None:
        self._folder = folder
        self.hub: Hub = LogHub.create(folder / "hub.db", partitions=partitions)

    def send(self, partition: str, bodies: Sequence[bytes]) -> None:
        assert isinstance(self.hub, LogHub)
        self.hub.append(pa.table({"body": pa.array(bodies, pa.binary())}), partition=partition)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        with away(self._folder, "hub.db"):
            yield

    def close(self) -> None:
        self.hub.close()


class EventHubs:
    """An embedded log that `leasehold serve` serves to the official client, in a process of its own."""

    one_reader = True

    def __init__(self, folder: Path, partitions: int = PARTITIONS) -> None:
        self._log = LogHub.create(folder / "served.db", partitions=partitions)
        self._port = 0
        self._serve()
        self._connect()

    def _serve(self) -> None:
        command = [sys.executable, "-m", "leasehold.cli.app", "serve", self._log.url, "--name", "served", "--json"]
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, "the server did not start"
        told = json.loads(said)
        self._port = told["port"]
        self.environment: Mapping[str, str] = {VARIABLE: told["connectionString"]}

    def _connect(self) -> None:
        host = self.environment[VARIABLE].partition("sb://")[2].partition(";")[0].strip("/")
        self.url = f"eventhubs://{host}/served"
        with mock.patch.dict(os.environ, self.environment):
            self.hub: Hub = open_hub(self.url)

    def send(self, partition: str, bodies: Sequence[bytes]) -> None:
        self.hub.send([Event(body) for body in bodies], partition=partition)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """The server is killed; another one comes back at its address with what it has acknowledged."""
        self.hub.close()
        self._kill()
        try:
            yield
        finally:
            self._serve()
            self._connect()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def close(self) -> None:
        self.hub.close()
        self._kill()
        self._log.close()


class Kafka:
    """A topic of librdkafka's mock cluster, in a process of its own."""

    environment: Mapping[str, str] = {
        "LEASEHOLD_KAFKA_REQUEST_TIMEOUT": "5s",
        "LEASEHOLD_KAFKA_TRANSFER_TIMEOUT": "5s",
    }
    one_reader = False

    def __init__(self, folder: Path, partitions: int = PARTITIONS) -> None:
        self._cluster = Cluster()
        self.url = self._cluster.url(self._cluster.topic(partitions))
        with mock.patch.dict(os.environ, self.environment):
            self.hub: Hub = open_hub(self.url)

    def send(self, partition: str, bodies: Sequence[bytes]) -> None:
        self.hub.send([Event(body) for body in bodies], partition=partition)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """The brokers go silent: a mock cluster that is killed loses its events."""
        self._cluster.pause()
        try:
            yield
        finally:
            self._cluster.resume()

    def close(self) -> None:
        self.hub.close()
        self._cluster.kill()


@contextlib.contextmanager
def away(folder: Path, file: str) -> Iterator[None]:
    """A database that is not there for the length of the block."""
    names = [path.name for path in folder.glob(f"{file}*")]
    aside = folder / "aside"
    aside.mkdir()
    for name in names:
        (folder / name).rename(aside / name)
    yield
    for name in names:
        (aside / name).rename(folder / name)
    aside.rmdir()
