"""Programs in Rust, built beside the interpreter, from crates as `cargo` is configured for them on the machine.

Where there is no `cargo`, or a crate cannot be had, the test that asks is skipped with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.left_out import failed
from tests.node_packages import locked


def built(what: str, source: Path, name: str) -> Path:
    """The program of the crate in the folder `source`, built as `name`. `what` it is: for why it is left out.

    The first build compiles some 250 crates, for minutes; those after it compile what has changed.
    """
    if (cargo := shutil.which("cargo")) is None:
        pytest.skip(f"{what} is left out: there is no cargo here")
    environment = _environment(Path(cargo))
    said = subprocess.run([cargo, "--version"], env=environment, capture_output=True, text=True, check=False)
    if said.returncode:
        pytest.skip(f"{what} is left out: there is no toolchain for cargo here ({said.stderr.strip()[:200]})")
    folder = Path(sys.prefix) / "share" / "leasehold-tests" / name
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        copy = folder / "source"  # with the times of its files, by which cargo knows what has changed
        shutil.copytree(source, copy, dirs_exist_ok=True)
        done = subprocess.run(
            [cargo, "build", "--quiet", "-j1", "--manifest-path", str(copy / "Cargo.toml")],
            env={**environment, "CARGO_TARGET_DIR": str(folder / "target")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
        )
    if done.returncode:
        failed(f"{what} is left out: cargo says {done.stderr.strip()[-500:]}")
    return folder / "target" / "debug" / "official-processor"


def _environment(cargo: Path) -> dict[str, str]:
    """With the toolchains of rustup where they are that belong to its `cargo`, whatever HOME is."""
    toolchains = cargo.parent.parent.parent / ".rustup"
    return {**({"RUSTUP_HOME": str(toolchains)} if toolchains.is_dir() else {}), **os.environ}
