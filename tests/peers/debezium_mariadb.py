"""A MariaDB of the tests' own, from Debian's packages, and a database of it for each test, which Debezium captures.

A mark is a row of a table of its own, `marks`: as one that was inserted it comes behind the snapshot alone, and behind
all changes before it. Owns the server's process, and signals no other.
"""

from __future__ import annotations

import itertools
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql

from tests.left_out import failed
from tests.peers.debezium_engine import PREFIX, Change, Source, engine_program
from tests.peers.debian import environment, unpacked
from tests.ports import free_port
from tests.waiting import until

RELEASE = "3.5.0.Final"
JARS = (
    f"io.debezium:debezium-api:{RELEASE}",
    f"io.debezium:debezium-embedded:{RELEASE}",
    f"io.debezium:debezium-connector-mariadb:{RELEASE}",
    "org.slf4j:slf4j-simple:1.7.36",
)
_PACKAGES = ("mariadb-server-core", "mariadb-client-core", "mariadb-common", "libaio1", "libnuma1", "liburing2")
_SERVER_IDS = itertools.count(1_000)


class MariaDb:
    """A server that keeps its changes as rows, in a folder of its own, on a port of this machine."""

    def __init__(self, folder: Path) -> None:
        programs = unpacked("mariadb", *_PACKAGES)
        self.port = free_port()
        self._log = folder / "mariadb.log"
        base, data = f"--basedir={programs / 'usr'}", f"--datadir={folder / 'mariadb'}"
        variables = environment(programs)
        with self._log.open("ab") as log:
            install = ["sh", str(programs / "usr/bin/mariadb-install-db"), "--no-defaults", base, data, "--user=root"]
            as_root = ["--auth-root-authentication-method=normal", "--skip-test-db"]
            done = subprocess.run([*install, *as_root], stdout=log, stderr=log, timeout=120, check=False, env=variables)
            if done.returncode:
                failed(f"MariaDB is left out: {self._said()}")
            settings = {
                "user": "root",
                "bind-address": "127.0.0.1",
                "port": self.port,
                "socket": folder / "mariadb.sock",
                "pid-file": folder / "mariadb.pid",
                "log-bin": "changes",
                "binlog-format": "ROW",
                "server-id": 1,
                "default-time-zone": "+00:00",
                "character-set-server": "utf8mb4",
                "innodb-buffer-pool-size": "32M",
            }
            options = [f"--{name}={value}" for name, value in settings.items()]
            command = [str(programs / "usr/sbin/mariadbd"), "--no-defaults", base, data, *options]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=variables
            )
        until(lambda: self._answers() or self._process.poll() is not None, "MariaDB to answer")
        if self._process.poll() is not None:
            failed(f"MariaDB is left out: it does not start: {self._said()}")

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        with suppress(pymysql.err.OperationalError):
            self.connect().close()
            return True
        return False

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-1000:]


class CapturedMariaDb:
    """A database with a table for marks."""

    def __init__(self, database: pymysql.Connection[Any], name: str) -> None:
        self._database, self._name = database, name

    def settings(self, folder: Path) -> Mapping[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(folder / "history"),
            "include.schema.changes": "false",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._database.port),
            "database.user": "root",
            "database.password": "",
            "database.ssl.mode": "disable",
            "database.server.id": str(next(_SERVER_IDS)),
            "database.include.list": self._name,
        }

    def run(self, statement: str) -> None:
        with self._database.cursor() as cursor:
            cursor.execute(statement)

    def mark(self, word: str) -> None:
        self.run(f"INSERT INTO marks VALUES ('{word}')")

    def is_mark(self, change: Change, word: str = "") -> bool:
        return change.topic == f"{PREFIX}.{self._name}.marks" and word.encode() in (change.value or b"")

    def streams(self, arrived: Sequence[Change]) -> bool:
        self.mark(secrets.token_hex(8))  # one that was inserted before the snapshot is a row of that
        return any(self.is_mark(each) and b'"op":"c"' in (each.value or b"") for each in arrived)

    def is_free(self) -> bool:
        return True  # an engine has a server id of its own, and the server keeps its log for everybody

    def forget(self) -> None:
        pass


class MariaDbSource(Source):
    """A database of MariaDB."""

    def __init__(self, program: Sequence[str], server: MariaDb, folder: Path) -> None:
        super().__init__(program, folder)
        self._name = f"source_{secrets.token_hex(4)}"
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self._name}")
        self._database = server.connect(self._name)
        self.run("CREATE TABLE marks (word varchar(40) PRIMARY KEY)")

    def run(self, *statements: str) -> None:
        with self._database.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def look(self, query: str) -> list[tuple[Any, ...]]:
        with self._database.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def _as_captured(self, settings: Mapping[str, str]) -> CapturedMariaDb:
        return CapturedMariaDb(self._database, self._name)

    def end(self) -> None:
        super().end()
        self._database.close()


@contextmanager
def mariadb_of_its_own(folder: Path) -> Iterator[tuple[MariaDb, list[str]]]:
    """A server for the length of the block, and the engine's program."""
    program = engine_program("debezium-mariadb", JARS)
    server = MariaDb(folder)
    try:
        yield server, program
    finally:
        server.kill()
