"""A user id without an entry in the password file, as some platforms give to containers.

A user namespace shows this process such an id, and leaves it the rights that it has.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dashboard.serving import Place
from tests.namespaces import in_namespaces
from tests.waiting import PATIENCE

USER = next(number for number in range(12_345, 60_000) if number not in {user.pw_uid for user in pwd.getpwall()})
SESSION = "from leasehold.spark.session.opening import open_session; open_session('app')"


def as_nobody(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What this interpreter prints of a command, run by a user id that has no name."""
    return subprocess.run(
        [*in_namespaces("--user", f"--map-user={USER}", "--map-group=0"), sys.executable, *command],
        env={**{name: value for name, value in os.environ.items() if name != "HOME"}, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_session_says_so_before_java_does() -> None:
    done = as_nobody("-c", SESSION)
    assert done.returncode == 1
    [*_, last] = done.stderr.splitlines()
    assert last.startswith(f"leasehold.errors.ConfigError: user id = {USER}: the password file has no entry for it")
    assert f"leasehold:x:{USER}:0::/tmp:/bin/sh" in last


def test_commands_need_no_name(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.own("0", "blue/1")
    done = as_nobody("-m", "leasehold", "status", str(place.file))
    assert (done.returncode, done.stderr) == (0, "")
    assert "blue" in done.stdout
    place.close()


@pytest.mark.more
def test_the_dashboard_asks_for_a_file_where_there_is_no_home(tmp_path: Path) -> None:
    place = Place(tmp_path)
    done = as_nobody("-m", "leasehold", "dashboard", str(place.file), "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "--history: its default folder cannot be had" in done.stderr
    assert done.stderr.rstrip().endswith("Name a file.")
    place.close()
