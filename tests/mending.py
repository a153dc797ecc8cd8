"""Troubles that a person has to mend, on real servers and disks: how each begins, what is said, and how it ends."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from click.testing import CliRunner

from leasehold.cli.app import app
from tests.left_out import failed
from tests.stores.servers import PostgresServer
from tests.waiting import until

PASSWORD = "right one"  # noqa: S105  of a role of the test's own


@dataclass(frozen=True)
class Trouble:
    """Something that a person `mend`s. `says` are parts of the message, in their order."""

    name: str
    begin: Callable[[], object]
    mend: Callable[[], object]
    says: tuple[str, ...]


class Server:
    """A database of its own in a server of the test's own, and a role in it whose rights are few."""

    def __init__(self, server: PostgresServer) -> None:
        self.role = f"few_{secrets.token_hex(4)}"
        self.admin = psycopg.connect(server.url, autocommit=True)
        self.admin.execute(f"CREATE ROLE {self.role} LOGIN PASSWORD '{PASSWORD}'".encode())
        self.admin.execute(f"CREATE DATABASE {self.role}".encode())
        self.url = server.database(self.role).replace("postgres:@", f"{self.role}:{PASSWORD.replace(' ', '%20')}@")
        self.admin_url = server.database(self.role)
        self._rules = Path(self.look("SHOW hba_file")[0][0])
        self._before = self._rules.read_text()
        self._rules.write_text(f"local all {self.role} scram-sha-256\n{self._before}")
        self.admin.execute("SELECT pg_reload_conf()")

    def run(self, *statements: str) -> None:
        """As the superuser, in the role's database."""
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.format(role=self.role).encode())

    def look(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def lock_out(self) -> None:
        """Give the role another password, and end its sessions."""
        self.run(
            "ALTER ROLE {role} PASSWORD 'another one'",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'",
        )

    def let_in(self) -> None:
        self.run(f"ALTER ROLE {{role}} PASSWORD '{PASSWORD}'")

    @property
    def folder(self) -> Path:
        """A folder that the server may look into."""
        return self._rules.parent.parent

    def on_disk(self, disk: Path) -> str:
        """A tablespace in this folder."""
        disk.chmod(0o755)
        (disk / "table").mkdir()
        shutil.chown(disk / "table", *self._owner())
        name = f"small_{secrets.token_hex(4)}"
        self.admin.execute(f"CREATE TABLESPACE {name} LOCATION '{disk / 'table'}'".encode())
        return name

    def _owner(self) -> tuple[int, int]:
        there = self._rules.parent.stat()
        return there.st_uid, there.st_gid

    def close(self) -> None:
        self._rules.write_text(self._before)
        self.admin.execute("SELECT pg_reload_conf()")
        self.admin.execute(f"DROP DATABASE {self.role} WITH (FORCE)".encode())
        self.admin.close()


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A disk of this size, for the length of the block. Where nothing can be mounted the test is left out."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        failed("nothing can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave no room on it."""
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(b"0" * 4096):
                pass
        except OSError:
            return


def make_room(disk: Path) -> None:
    (disk / "ballast").unlink()


def to_mend(file: Path) -> list[str]:
    """What `leasehold status` says that a person has to mend."""
    said = CliRunner().invoke(app, ["status", str(file), "--wait", "0", "--json"])
    if said.exit_code:
        return []
    return [one["lastError"] for one in json.loads(said.stdout)["toMend"]]


def says(text: str, parts: tuple[str, ...]) -> bool:
    """Whether a text has all of these parts, in their order."""
    place = 0
    for part in parts:
        place = text.find(part, place)
        if place < 0:
            return False
    return True


def live_through(trouble: Trouble, file: Path, send: Callable[[], object], is_done: Callable[[], bool]) -> None:
    """A run meets a trouble, `status` says it, a person mends it, and the run goes on."""
    trouble.begin()
    send()
    until(lambda: any(says(said, trouble.says) for said in to_mend(file)), f"status to say {trouble.says}", pause=0.3)
    assert not is_done()
    trouble.mend()
    until(is_done, f"the run to go on after: {trouble.name}")
