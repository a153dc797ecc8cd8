"""A pipeline whose events are set aside, and a command that says or does something about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from leasehold.cli.app import app

PIPELINE = """
name = "flights"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///leasehold.db"
[sink]
url = "sqlite:///entities.db"
table = "flights"
keys = ["id"]
"""


class Command:
    """`leasehold NAME` for the pipeline file of a folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, place: Path, *arguments: str) -> Result:
        """Call it: the first argument is the word that the command's name is followed by, or empty."""
        first, *rest = arguments
        words = [first, str(place / "flights.toml")] if first else [str(place / "flights.toml")]
        return CliRunner().invoke(app, [self._name, *words, *rest])

    def document(self, place: Path, *arguments: str) -> dict[str, Any]:
        """What it prints as JSON."""
        said = self(place, *arguments, "--json")
        assert said.exit_code == 0, said.output
        found: dict[str, Any] = json.loads(said.stdout)
        return found
