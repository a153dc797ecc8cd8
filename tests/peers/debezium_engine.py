"""A real Debezium: its embedded engine, from Maven's JARs, on a database that a test has.

Owns the engines' processes. Promises that whoever has started an engine finds it past its initial snapshot; to give all
changes that were made before one asks, in the engine's order; and to signal only processes that it has started itself,
by their ids. What an engine has to be told of a database, and how one sees how far it is, is that database's
(`Captured`).
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.peers.maven import java_program
from tests.waiting import until

PREFIX = "source"
"""Of all topics: a table's is `source.public.name`."""
WITHOUT_SCHEMA = {"converter.schemas.enable": "false"}
"""Settings for keys and values that are JSON without the schema that Kafka Connect writes before them."""
FLATTENED = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}
"""Settings for values that are the new row alone, and null where a row was deleted: JSON's, and no value in Avro."""


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


def engine_program(name: str, jars: Sequence[str]) -> list[str]:
    """The command that runs an engine with these JARs, which are kept under this name."""
    return java_program("Debezium", name, jars, Path(__file__).with_name("DebeziumEngine.java"))


@dataclass(frozen=True)
class Change:
    """What Debezium gives to a topic. `value` is None in a tombstone, `key` where the table has none."""

    topic: str
    key: bytes | None
    value: bytes | None

    def read(self) -> Any:
        """The value as JSON."""
        return json.loads(self.value or b"null")


class Captured(Protocol):
    """A database as one engine captures it."""

    def settings(self, folder: Path) -> Mapping[str, str]:
        """What the engine has to be told; the folder is for files of its own."""

    def run(self, statement: str) -> None:
        """Change the database."""

    def mark(self, word: str) -> None:
        """Change it so that the engine writes a change that `is_mark`, behind all changes before."""

    def is_mark(self, change: Change, word: str = "") -> bool:
        """Whether a change is of a mark, of this one where it is named."""

    def streams(self, arrived: Sequence[Change]) -> bool:
        """Whether the engine, of which so much has arrived, is past its snapshot."""

    def is_free(self) -> bool:
        """Whether the server has seen that an engine is gone."""

    def forget(self) -> None:
        """Let the server keep nothing for the engine any more."""


class Engine:
    """An engine of Debezium on what it captures. Its offsets are in a file, so it may start again."""

    def __init__(self, program: Sequence[str], captured: Captured, folder: Path, settings: Mapping[str, str]) -> None:
        """Does not start it yet."""
        folder.mkdir()
        self._format = "avro" if "converter.apicurio.registry.url" in settings else "json"
        self._program, self._captured, self._folder = program, captured, folder
        self._unread: list[Change] = []
        own = {
            "name": folder.name,
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / "offsets"),
            "topic.prefix": PREFIX,
            "poll.interval.ms": "50",
            **captured.settings(folder),
        }
        (folder / "properties").write_text("".join(f"{name}={value}\n" for name, value in {**own, **settings}.items()))
        (folder / "changes").touch()
        self._changes = (folder / "changes").open("rb")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again where it was killed, and wait until it is past its snapshot and streams."""
        with (self._folder / "changes").open("ab") as changes, (self._folder / "log").open("ab") as log:
            command = [*self._program, str(self._folder / "properties"), self._format]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=changes, stderr=log)
        until(lambda: self._runs() and self._captured.streams(self._arrived()), "Debezium to stream")

    def changes(self, *statements: str) -> list[Change]:
        """Run these statements, and give what came since one last asked: up to the last of them, and all before it.

        What an incremental snapshot writes comes when it comes: for that there is `changes_until`.
        """
        for statement in statements:
            self._captured.run(statement)
        mark = secrets.token_hex(8)
        self._captured.mark(mark)

        def marked(made: list[Change]) -> int | None:
            return next((place + 1 for place, each in enumerate(made) if self._captured.is_mark(each, mark)), None)

        return self._until(marked, "what was changed")

    def changes_until(self, complete: Callable[[list[Change]], object], what: str) -> list[Change]:
        """What came since one last asked, as soon as that is `complete`."""
        return self._until(lambda made: len(made) if complete(made) else None, what)

    def _until(self, end: Callable[[list[Change]], int | None], what: str) -> list[Change]:
        """What came, up to the place that is the end as soon as there is one; what came behind it is given next."""
        until(lambda: self._runs() and end(self._arrived()) is not None, f"Debezium to write {what}")
        cut = end(self._unread)
        given, self._unread = self._unread[:cut], self._unread[cut:]
        return [each for each in given if not self._captured.is_mark(each)]

    def log(self) -> str:
        """What it has logged, from warnings on."""
        return (self._folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        """End it with no chance to say how far it is. The server keeps all that it has not confirmed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        until(self._captured.is_free, "the server to see that it is gone")

    def end(self) -> None:
        """End it, and let the server forget it."""
        self.kill()
        self._changes.close()
        self._captured.forget()

    def _runs(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Debezium has ended: {self.log()[-2000:]}"
        return True

    def _arrived(self) -> list[Change]:
        """All that has not been given yet."""
        while (line := self._changes.readline()).endswith(b"\n"):
            told = json.loads(line)
            self._unread.append(Change(told["topic"], _decoded(told["key"]), _decoded(told["value"])))
        self._changes.seek(-len(line), 1)  # a line that is still being written
        return self._unread


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class Source:
    """A new database, and the engines that capture it. Each kind of database says what is missing here."""

    def __init__(self, program: Sequence[str], folder: Path) -> None:
        self._program, self._folder = program, folder
        self._engines: list[Engine] = []

    def run(self, *statements: str) -> None:
        """Change the database."""
        raise NotImplementedError

    def look(self, query: str) -> list[tuple[Any, ...]]:
        """What a query gives."""
        raise NotImplementedError

    def _as_captured(self, settings: Mapping[str, str]) -> Captured:
        """The database for one more engine, which has these settings of the test's."""
        raise NotImplementedError

    def captured(self, *settings: Mapping[str, str]) -> Engine:
        """An engine with these settings, which has written its initial snapshot and streams."""
        every = {name: value for each in settings for name, value in each.items()}
        folder = self._folder / f"engine-{len(self._engines)}"
        engine = Engine(self._program, self._as_captured(every), folder, every)
        self._engines.append(engine)
        engine.start()
        return engine

    def end(self) -> None:
        """End its engines."""
        for engine in self._engines:
            engine.end()
