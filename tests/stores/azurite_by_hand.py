"""An Azurite whose time a test moves: what expires there is never outwaited, and nothing expires by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from leasehold_testkit.clock import ManualClock
from tests.stores.azurite import Azurite, started

_CLOCK = Path(__file__).with_name("azurite_clock.js")


class AzuriteByHand(Azurite):
    """Its clock and that of a client, `clock`, stand still until both are moved together."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.clock = ManualClock(wall=time.time())
        self._file = folder / "time"
        self.advance(0.0)

    def start(self) -> None:
        with mock.patch.dict(os.environ, CLOCK=str(self._file), NODE_OPTIONS=f"--require {_CLOCK}"):
            super().start()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        written = self._file.with_suffix(".new")
        written.write_text(str(round(self.clock.wall() * 1000)))
        written.replace(self._file)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzuriteByHand]:
    server = AzuriteByHand(tmp_path_factory.mktemp("azurite"))
    started(server)
    yield server
    server.stop()
