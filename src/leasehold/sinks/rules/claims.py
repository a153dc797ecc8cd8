"""An entity table has one owner and one reader: the rules of whose it is, and what is said where it is another's.

Owns these rules and does no I/O. A table belongs, for good, to the pipeline, mode and keys that it was first used with,
and is filled from a hub by one consumer group. What was applied and is gone is never made anew, empty: by its
watermarks nothing would be missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from leasehold.errors import AlreadyInUse, SinkError
from leasehold.printable import printable
from leasehold.sinks.rules.table_spec import TableSpec, folded, ordered_keys
from leasehold.stored_formats import refusal


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What is recorded of a table: the format of its bookkeeping, whose it is, and the identity of the sink.

    `keys` are JSON, as `keys_text` gives them.
    """

    format: int
    pipeline: str
    mode: str
    keys: str
    sink_id: str


def keys_text(spec: TableSpec) -> str:
    """The keys of a table as they are recorded."""
    return json.dumps([folded(key) for key in ordered_keys(spec)])


def check_format(table: object, stated: object, written: int) -> None:
    """Refuse a table whose bookkeeping is not in the format that is `written` here."""
    if not isinstance(stated, int):  # SQLite keeps what it is given
        raise SinkError(
            f"leasehold_table says that the table {table} is of format {_shown(stated)}, which does not "
            "exist. Somebody else has written that: restore the database"
        )
    remedy = (
        "Stop every instance; name another database or, in Postgres, another schema, or remove from this one the "
        "entity tables, TABLE_rejected of each, and all tables whose names begin with leasehold_ but those of stores "
        "(leasehold_schema, _ownership, _presence, _ask, _checkpoint, _binding, _session, _lease, _fence); then fill "
        "the tables anew: leasehold reset PIPELINE.toml --to earliest"
    )
    if refused := refusal(f"the table {table} has", stated, written, remedy):
        raise SinkError(refused)


def check_record(spec: TableSpec, record: TableRecord, written: int) -> None:
    """Refuse a table of another format, pipeline, mode or set of keys."""
    check_format(spec.called, record.format, written)
    if record.pipeline != spec.pipeline:
        raise AlreadyInUse(
            f"the table {spec.called} belongs to the pipeline {record.pipeline!r}, and {spec.pipeline!r} wants to "
            "write to it. Give each pipeline a table of its own, or the two the same name if they are one"
        )
    if (record.mode, record.keys) != (spec.mode, keys_text(spec)):
        raise AlreadyInUse(
            f"the table {spec.called} was made with mode {record.mode} and keys {_words(record.keys)}, and is asked "
            f"for with mode {spec.mode} and keys {_words(keys_text(spec))}. Use what it was made with, or a new table"
        )


def neighbours(spec: TableSpec) -> tuple[str, ...]:
    """Names of entity tables that this one cannot be beside."""
    others = (spec.rejected, folded(spec.name).removesuffix("_rejected"))
    return tuple(other for other in others if folded(other) != folded(spec.name))


def too_near(spec: TableSpec, other: str) -> AlreadyInUse:
    """The error for a table that cannot be beside the entity table `other`."""
    return AlreadyInUse(
        f"the table {spec.called} cannot be beside the entity table {other}: the rejected events of one "
        "would be the other. Choose another name"
    )


def check_marked(spec: TableSpec, written: int, least: int) -> None:
    """Refuse a batch whose watermarks the database has not written: the next one would apply its events again."""
    if written < least:
        raise SinkError(
            f"the watermarks of {spec.called} were not written, and the database raised nothing: a trigger or a rule "
            "on leasehold_watermark keeps its rows as they are. Nothing of the batch was applied. Remove it"
        )


def was_dropped(spec: TableSpec, gone: str) -> SinkError:
    """The error where the table, or what is kept beside it, is gone and the watermarks are not."""
    return SinkError(
        f"the table {gone} has been dropped, and the watermarks of {spec.called} are still there: the events that "
        "it held would never come again. Restore the database; or drop the entity table too, if it is still "
        "there, and fill it anew: leasehold reset PIPELINE.toml --to earliest"
    )


def was_replaced(spec: TableSpec, where: str) -> AlreadyInUse:
    """The error where a table is not the one that this instance has written to."""
    return AlreadyInUse(
        f"{where}: the table {spec.called} is not the one that this instance has written to: the "
        "database was deleted or replaced while it was running. Stop all instances and put the database "
        "back, or fill the new table from the beginning: leasehold reset PIPELINE.toml --to earliest"
    )


def another_reader(spec: TableSpec, group: str) -> AlreadyInUse:
    """The error for a second consumer group of a hub: its watermarks would let all events through once more."""
    return AlreadyInUse(
        f"the table {spec.called} has been filled from this hub by the consumer group {group!r}, and "
        f"{spec.consumer_group!r} would apply the same events a second time. Use the group {group!r}, or "
        "another table"
    )


def filled_by_queue(spec: TableSpec, queue: str) -> AlreadyInUse:
    """Neither the queue's messages nor the hub's events would see the other's changes."""
    return AlreadyInUse(
        f"the table {spec.called} is filled with messages of the queue {queue!r}, and a table has one way to be "
        "filled. Give the hub's events a table of their own"
    )


def _words(keys: str) -> str:
    try:
        names = json.loads(keys)
    except ValueError:
        return _shown(keys)  # somebody else has written them
    return ", ".join(map(str, names)) or "none" if isinstance(names, list) else _shown(keys)


def _shown(kept: object) -> str:
    return printable(repr(kept)[:80])
