"""The databases that the suites of contracts run on: what each suite is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leasehold.sinks import Sink, TableSpec, open_sink
from tests.sinks.events import look
from tests.sinks.postgres import Place
from tests.waiting import PATIENCE


class OnSqlite:
    """A SQLite file of the test's own."""

    @pytest.fixture
    def open_table(self, tmp_path: Path) -> Callable[[TableSpec], Sink]:
        return lambda spec: open_sink("sqlite:///table.db", spec, base=tmp_path)

    @pytest.fixture
    def contents(self, tmp_path: Path) -> Callable[[], list[tuple[str, int]]]:
        query = "SELECT entity, value FROM entities ORDER BY entity, value"
        return lambda: look(tmp_path / "table.db", query)

    @pytest.fixture
    def set_aside(self, tmp_path: Path) -> Callable[[], list[tuple[str, int]]]:
        query = "SELECT partition, sequence_number FROM entities_rejected ORDER BY 1, 2"
        return lambda: look(tmp_path / "table.db", query)


class OnPostgres:
    """A schema of the test's own."""

    @pytest.fixture
    def open_table(self, place: Place) -> Iterator[Callable[[TableSpec], Sink]]:
        opened: list[Sink] = []

        def open_one(spec: TableSpec) -> Sink:
            opened.append(self.open_there(place, spec))
            return opened[-1]

        yield open_one
        for sink in opened:
            sink.close()

    def open_there(self, place: Place, spec: TableSpec) -> Sink:
        return open_sink(place.url, spec, timeout=PATIENCE)

    @pytest.fixture
    def contents(self, place: Place) -> Callable[[], list[tuple[Any, ...]]]:
        return lambda: place.look("SELECT entity, value FROM entities ORDER BY entity, value")

    @pytest.fixture
    def set_aside(self, place: Place) -> Callable[[], list[tuple[Any, ...]]]:
        return lambda: place.look("SELECT partition, sequence_number FROM entities_rejected ORDER BY 1, 2")


class InNamedSchema(OnPostgres):
    """The table's name has the schema, to which the connection does not lead."""

    def open_there(self, place: Place, spec: TableSpec) -> Sink:
        return open_sink(place.server, replace(spec, schema=place.schema), timeout=PATIENCE)
