"""The contract of sinks, where tasks stage the rows of every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from leasehold.sinks import Sink, TableSpec
from leasehold.testing.sinks import ForgettingContract, RejectedContract, SinkContract
from tests.sinks.databases import OnPostgres
from tests.sinks.postgres import Place
from tests.sinks.staged.staging import StagedSink
from tests.waiting import PATIENCE


class Staged(OnPostgres):
    """What each suite is given."""

    @pytest.fixture
    def open_table(self, place: Place) -> Iterator[Callable[[TableSpec], Sink]]:
        opened: list[Sink] = []

        def open_one(spec: TableSpec) -> Sink:
            opened.append(StagedSink(place.url, spec, timeout=PATIENCE))
            return opened[-1]

        yield open_one
        for sink in opened:
            sink.close()


class TestStagedSink(Staged, SinkContract):
    pass


class TestRejectedRowsOfStagedBatches(Staged, RejectedContract):
    pass


class TestForgettingOfStagedBatches(Staged, ForgettingContract):
    pass
