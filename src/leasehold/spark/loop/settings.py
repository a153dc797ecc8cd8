"""What a loop is told, checked together: arguments of the table in `leasehold.settings`, and what carries them.

A value may be text as in an option, or what the text stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from leasehold.body_format import EXACT, IDENTITY, JSON, PRECISE, BodyFormat
from leasehold.config import check_seconds
from leasehold.settings.table import ARGUMENT, ARGUMENTS, OPTION, find
from leasehold.spark.plan.options import READS, SourceOptions, settled


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What a loop reads, as `source` says it, and when: `leasehold.settings.table` explains each. Times in seconds."""

    source: SourceOptions = field(repr=False)
    trigger_interval: float = 0.0
    stop_timeout: float = 20.0
    available_now: bool = False
    format: str = JSON
    writer_schema: str | None = None
    message: str | None = None
    envelope: str | None = None
    content_encoding: str = IDENTITY
    skipped_operations: tuple[str, ...] = ()
    decimal_handling_mode: str = PRECISE
    timestamps: str = EXACT
    on_error: str = "stop"
    max_poison: int = 100
    trace_links: bool = False

    def __post_init__(self) -> None:
        for name in ("trigger_interval", "stop_timeout"):
            check_seconds(name, getattr(self, name), or_zero=True)

    @property
    def body_format(self) -> BodyFormat:
        """How bodies are read. Raises `ConfigError`."""
        return BodyFormat(
            format=self.format,
            writer_schema=self.writer_schema,
            message=self.message,
            envelope=self.envelope,
            content_encoding=self.content_encoding,
            skipped_operations=self.skipped_operations,
            decimal_handling_mode=self.decimal_handling_mode,
            timestamps=self.timestamps,
        )


_OWN = {one.name for one in fields(LoopSettings)} - {"source"}
_DEFAULTS = {name: row.default_at(ARGUMENT) for name, row in ARGUMENTS.items() if OPTION in row.elsewhere}
"""Defaults of arguments where the option of the name has another."""


def loop_settings(arguments: Mapping[str, Any]) -> LoopSettings:
    """The settings that these arguments make. Raises `ConfigError` that names the argument as it was given."""
    stated = {name: value for name, value in arguments.items() if value is not None}
    read = {
        name: find(name, ARGUMENTS, "an argument", value).read(value, name, READS) for name, value in stated.items()
    }
    own = {name: value for name, value in read.items() if name in _OWN}
    source = {name: value for name, value in read.items() if name not in _OWN}
    return LoopSettings(source=settled({**_DEFAULTS, **source}, str), **own)
