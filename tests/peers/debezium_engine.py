"""A real Debezium: its embedded engine, from Maven's JARs, on a Postgres of its own that keeps logical changes.

Owns the server, a database for each test, and the engines' processes. Promises that whoever has started an engine finds
it past its initial snapshot; to give all changes that were made before one asks, in the engine's order; and to signal
only processes that it has started itself, by their ids.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.peers.maven import java_program
from tests.ports import free_port
from tests.stores.servers import PostgresServer, postgres_of_its_own
from tests.waiting import until

RELEASE = "3.6.1.Final"
JARS = (
    f"io.debezium:debezium-api:{RELEASE}",
    f"io.debezium:debezium-embedded:{RELEASE}",
    f"io.debezium:debezium-connector-postgres:{RELEASE}",
    "io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",
    "org.slf4j:slf4j-simple:1.7.36",
)
PREFIX = "source"
"""Of all topics: a table's is `source.public.name`."""
WITHOUT_SCHEMA = {"converter.schemas.enable": "false"}
"""Settings for keys and values that are JSON without the schema that Kafka Connect writes before them."""
FLATTENED = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}
"""Settings for values that are the new row alone, and null where a row was deleted: JSON's, and no value in Avro."""
_FENCE = "fence-"
"""What the prefixes of those messages begin with that tell how far the engine is."""
_LOGICAL = ("wal_level=logical", "max_replication_slots=40", "max_wal_senders=40", "listen_addresses=127.0.0.1")


def avro(registry: str) -> dict[str, str]:
    """Settings for keys and values in Avro in Confluent's form: a byte 0, the schema's number in four bytes, the body.

    The Apicurio at this URL keeps the schemas.
    """
    converter = {
        "url": f"{registry}/apis/registry/v2",
        "auto-register": "true",
        "headers.enabled": "false",
        "id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
        "use-id": "contentId",  # the number by which Confluent's API gives it
    }
    return {f"converter.apicurio.registry.{name}": value for name, value in converter.items()}


@dataclass(frozen=True)
class Change:
    """What Debezium gives to a topic. `value` is None in a tombstone, `key` where the table has none."""

    topic: str
    key: bytes | None
    value: bytes | None

    def read(self) -> Any:
        """The value as JSON."""
        return json.loads(self.value or b"null")


class Engine:
    """An engine of Debezium and the database that it captures. Its offsets are in a file, so it may start again."""

    def __init__(
        self, program: Sequence[str], database: psycopg.Connection[Any], folder: Path, settings: Mapping[str, str]
    ) -> None:
        """Does not start it yet."""
        folder.mkdir()
        self._format = "avro" if "converter.apicurio.registry.url" in settings else "json"
        self._program, self._database, self._folder = program, database, folder
        self._slot = settings.get("slot.name", f"slot_{secrets.token_hex(4)}")
        self._unread: list[Change] = []
        (folder / "properties").write_text(
            "".join(f"{name}={value}\n" for name, value in {**self._own(), **settings}.items())
        )
        (folder / "changes").touch()
        self._changes = (folder / "changes").open("rb")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again where it was killed, and wait until it is past its snapshot and streams."""
        with (self._folder / "changes").open("ab") as changes, (self._folder / "log").open("ab") as log:
            command = [*self._program, str(self._folder / "properties"), self._format]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=changes, stderr=log)
        until(lambda: self._runs() and self._slots("active AND confirmed_flush_lsn IS NOT NULL"), "Debezium to stream")

    def changes(self, *statements: str) -> list[Change]:
        """Run these statements, and give what came since one last asked: up to the last of them, and all before it.

        What an incremental snapshot writes comes when it comes: for that there is `changes_until`.
        """
        for statement in statements:
            self._database.execute(statement.encode())
        fence = f"{_FENCE}{secrets.token_hex(8)}"
        self._database.execute("SELECT pg_logical_emit_message(true, %s, '')", [fence])
        return self.changes_until(lambda made: any(_is_message(each, fence) for each in made), "what was changed")

    def changes_until(self, complete: Callable[[list[Change]], object], what: str) -> list[Change]:
        """What came since one last asked, as soon as that is `complete`."""
        until(lambda: self._runs() and complete(self._arrived()), f"Debezium to write {what}")
        given, self._unread = self._unread, []
        return [each for each in given if not _is_message(each, _FENCE)]

    def log(self) -> str:
        """What it has logged, from warnings on."""
        return (self._folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        """End it with no chance to say how far it is. The server keeps all that it has not confirmed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        until(
            lambda: not self._slots("active"), "Postgres to see that it is gone"
        )  # or it would not get its slot again

    def end(self) -> None:
        """End it, and let the server forget it."""
        self.kill()
        self._changes.close()
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
        self._database.execute(drop, [self._slot])

    def _own(self) -> dict[str, str]:
        """The settings that the tests' own take the place of."""
        where = self._database.info
        return {
            "name": self._slot,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self._folder / "offsets"),
            "database.hostname": "127.0.0.1",
            "database.port": str(where.port),
            "database.user": where.user,
            "database.password": "none",
            "database.dbname": where.dbname,
            "plugin.name": "pgoutput",
            "slot.name": self._slot,
            "publication.name": self._slot,
            "topic.prefix": PREFIX,
            "poll.interval.ms": "50",
        }

    def _runs(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Debezium has ended: {self.log()[-2000:]}"
        return True

    def _slots(self, state: str) -> bool:
        query = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{self._slot}' AND {state}"
        return bool(self._database.execute(query.encode()).fetchall())

    def _arrived(self) -> list[Change]:
        """All that has not been given yet."""
        while (line := self._changes.readline()).endswith(b"\n"):
            told = json.loads(line)
            self._unread.append(Change(told["topic"], _decoded(told["key"]), _decoded(told["value"])))
        self._changes.seek(-len(line), 1)  # a line that is still being written
        return self._unread


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _is_message(change: Change, prefix: str) -> bool:
    return change.topic == f"{PREFIX}.message" and prefix.encode() in (change.key or b"")


class Source:
    """A new database, and the engines that capture it."""

    def __init__(self, program: Sequence[str], url: str, folder: Path) -> None:
        self.url = url
        """Of the database, for psycopg."""
        self._program, self._folder = program, folder
        self._database = psycopg.connect(url, autocommit=True)
        self._engines: list[Engine] = []

    def run(self, *statements: str) -> None:
        """Change the database."""
        for statement in statements:
            self._database.execute(statement.encode())

    def look(self, query: str) -> list[tuple[Any, ...]]:
        """What a query gives."""
        return self._database.execute(query.encode()).fetchall()

    def captured(self, *settings: Mapping[str, str]) -> Engine:
        """An engine with these settings, which has written its initial snapshot and streams."""
        every = {name: value for each in settings for name, value in each.items()}
        engine = Engine(self._program, self._database, self._folder / f"engine-{len(self._engines)}", every)
        self._engines.append(engine)
        engine.start()
        return engine

    def end(self) -> None:
        """End its engines."""
        for engine in self._engines:
            engine.end()
        self._database.close()


class Debezium:
    """A Postgres server whose databases can be captured, and the engine's program."""

    def __init__(self, server: PostgresServer, program: Sequence[str]) -> None:
        self._server, self._program = server, program

    @contextmanager
    def source(self, folder: Path) -> Iterator[Source]:
        """A new database for the length of the block; what its engines keep is in the folder."""
        name = f"source_{secrets.token_hex(4)}"
        self._server.within(name)
        source = Source(self._program, self._server.database(name), folder)
        try:
            yield source
        finally:
            source.end()


@contextmanager
def debezium_of_its_own() -> Iterator[Debezium]:
    """A server, for the length of the block."""
    program = java_program("Debezium", "debezium", JARS, Path(__file__).with_name("DebeziumEngine.java"))
    with postgres_of_its_own(free_port(), *_LOGICAL) as server:
        yield Debezium(server, program)
