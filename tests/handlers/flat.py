"""Handled tables whose values are said field by field: a test changes one of them, and the others stay."""

from __future__ import annotations

from typing import Any

from leasehold.formats import BodyFormat
from leasehold.handlers import Bodies, EntityHandler, Failures, HandledTable, Spread, Writes
from leasehold.runtime import Runtime


def values(**flat: Any) -> dict[str, Any]:
    """The arguments of a handled table; what is None has its default. `spread` says whether it is."""

    def taken(*names: str) -> dict[str, Any]:
        found = {name: flat.pop(name) for name in names if name in flat}
        return {name: value for name, value in found.items() if value is not None}

    read, written = taken("rescue", "timestamps"), taken("related", "outbox", "schema_evolution")
    failures = taken("on_failure", "retries", "handler_timeout", "hand_over_timeout")
    spread, runtime = taken("sequence_by", "late", "exclusive"), taken("clock", "rng", "base")
    return {
        **flat,
        "schema": Bodies(flat["schema"], BodyFormat(**read)) if read else flat["schema"],
        "state": Writes(flat["state"], **written) if written else flat["state"],
        "failures": Failures(**failures),
        "spread": Spread(**spread) if flat.get("spread") else None,
        "runtime": Runtime(**runtime),
    }


def table(handler: EntityHandler, url: str, **flat: Any) -> HandledTable:
    """A handled table of these fields."""
    return HandledTable(handler, url, **values(**flat))
