"""What of set-aside events a person has selected, as a condition of SQL."""

from __future__ import annotations

from typing import Any

from leasehold.sinks.beside.session import Session
from leasehold.sinks.set_aside import EventId, Selection


def terms_of(
    session: Session, selection: Selection, after: EventId | None, reason: str
) -> tuple[list[str], dict[str, Any]]:
    """Conditions on rows with hub, partition and sequence number, whose reason is in the column `reason`, and values.

    A text that no column of the database can hold is in none.
    """
    terms: list[str] = []
    values: dict[str, Any] = {}
    if selection.events is not None:
        events = sorted(event for event in selection.events if _is_utf8(event[0]))
        chosen, values = session.asked("chosen", {"name": "text", "number": "bigint"}, events)
        terms.append(f"(partition, sequence_number) IN (SELECT name, number FROM {chosen})")
    for given, term, text in (
        ("reason", session.contains(reason, "reason"), selection.reason),
        ("hub", "hub = %(hub)s", selection.hub),
    ):
        if text is not None:
            holds = _is_utf8(text) and session.storable(text) == text
            terms.append(term if holds else "1 = 0")
            values |= {given: text} if holds else {}
    if after is not None:
        terms.append("(hub, partition, sequence_number) > (%(after_hub)s, %(after_partition)s, %(after_number)s)")
        values |= {"after_hub": after.hub, "after_partition": after.partition, "after_number": after.sequence_number}
    return terms, values


def _is_utf8(text: str) -> bool:
    """Whether it has no half of a surrogate pair, as a command line has in place of bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
