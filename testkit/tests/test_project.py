"""What `testkit/pyproject.toml` says: one version of Leasehold, its license, and the kit's commands."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any

import click
from tests.repository import ROOT

from leasehold import __version__
from leasehold.cli.app import COMMANDS, KIT

TESTKIT = ROOT / "testkit"


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def test_the_kit_is_for_the_version_of_leasehold_beside_it() -> None:
    kit = project(TESTKIT)
    assert kit["version"] == __version__
    [needed] = [each for each in kit["dependencies"] if each.startswith("leasehold")]
    assert needed == f"leasehold[log]=={__version__}"
    assert kit["requires-python"] == project(ROOT)["requires-python"]


def test_the_license_is_that_of_leasehold() -> None:
    assert (TESTKIT / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_each_command_that_leasehold_looks_for_is_there_and_no_other() -> None:
    named = project(TESTKIT)["entry-points"][KIT]
    assert named.keys() == {name for name, (place, _) in COMMANDS.items() if place == KIT}
    for name, place in named.items():
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        assert command.name == name
