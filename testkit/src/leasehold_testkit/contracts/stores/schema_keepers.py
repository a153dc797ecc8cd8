"""What the contracts of stores ask of a `SchemaKeeper`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold.stores.base import SchemaChange, SchemaKeeper
from leasehold_testkit.contracts.stores.groups import at_once


def assert_made_once(reopen: Callable[[], object]) -> None:
    """Make what a store that is in use needs, by eight at once: nothing is made anew. Skips what needs nothing."""

    def maker() -> Callable[[], SchemaChange | None]:
        store = reopen()
        if not isinstance(store, SchemaKeeper):
            pytest.skip("the store has nothing to make")
        return store.create_schema

    made = at_once([maker() for _ in range(8)])
    assert all(change is None or change.before == change.after for change in made)
