"""How a store is closed, whichever it is."""

from __future__ import annotations


def close_store(store: object) -> None:
    """Close the connections of a store. One in memory has none, and no `close`."""
    close = getattr(store, "close", None)
    if close is not None:
        close()
