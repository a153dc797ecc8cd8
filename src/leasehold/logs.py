"""Log records as JSON, and notices as log records.

Owns the names that a log store sees: those of the Elastic Common Schema (ECS), `leasehold.*` for what it has no name
for, and an `event.action` for each kind of notice, which follows from the name of its class and stays. Promises one
line a record whatever is in it, and that no record raises: a value that JSON has not becomes its text.

What a thread works on is told with `about`; a record may name its own by `extra=at(partition="3")`, which counts more,
and one whose text begins with `partition %s` has named it so.
An instance tells its owner id in the threads that it works in. In a thread that nobody has told anything, for example
of a driver, the only instance of the process is the one that is meant; where there are several, no owner is named.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from leasehold.errors import verdict_of
from leasehold.notices import CheckpointUpdated, Measurement, Notice, Notices
from leasehold.printable import printable_json, text_of

__all__ = ["JsonFormatter", "about", "action_of", "at", "log_notices"]

ECS_VERSION = "8.11"
_NAMES = {"owner": "leasehold.owner.id", "partition": "leasehold.partition", "batch": "leasehold.batch.id"}
_BEGINS_WITH_PARTITION = re.compile(r"partition %s\b")
_about: ContextVar[Mapping[str, str]] = ContextVar("leasehold_about")
_lock = threading.Lock()
_owners: list[str] = []
"""The instances of this process that work at the moment."""

logger = logging.getLogger("leasehold.notices")


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Say what this thread works on in the block: `fields` may be `owner`, `partition` and `batch`."""
    token = _about.set({**_about.get({}), **fields})
    try:
        yield
    finally:
        _about.reset(token)


@contextmanager
def working_as(owner: str) -> Iterator[None]:
    """For an instance: this thread works as `owner`, and so does every thread that is not told otherwise."""
    with _lock:
        _owners.append(owner)
    try:
        with about(owner=owner):
            yield
    finally:
        with _lock:
            _owners.remove(owner)


def at(**fields: str) -> dict[str, Any]:
    """The `extra` of a log record that is about these `fields`, named as those of `about`."""
    return {"leasehold": fields}


def _what(record: logging.LogRecord) -> dict[str, str]:
    told = dict(_about.get({}))
    with _lock:
        if "owner" not in told and len(set(_owners)) == 1:
            told["owner"] = _owners[0]
    if _BEGINS_WITH_PARTITION.match(text_of(record.msg)) and isinstance(record.args, tuple) and record.args:
        told["partition"] = text_of(record.args[0])
    own = getattr(record, "leasehold", None)
    return {**told, **own} if isinstance(own, dict) else told


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line, by the names of ECS. Give it to a `logging.Handler`.

    `@timestamp` is in UTC; `error.type`, `error.message` and `error.stack_trace` are there for a record with an
    exception, `event.action` for a notice, `leasehold.owner.id`, `leasehold.partition` and `leasehold.batch.id` where
    they apply.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "@timestamp": f"{seconds}.{int(record.created % 1 * 1000):03d}Z",
            "log.level": record.levelname.lower(),
            "message": _message(record),
            "ecs.version": ECS_VERSION,
            "service.name": "leasehold",
            "log.logger": record.name,
            "process.pid": record.process,
            "process.thread.name": record.threadName,
        }
        if isinstance(record.exc_info, tuple) and record.exc_info[1] is not None:
            fields |= _of_error(record.exc_info[1])
            fields["error.stack_trace"] = self.formatException(record.exc_info)
        for name, value in _what(record).items():
            fields[_NAMES.get(name, name)] = value
        try:
            return printable_json(fields)
        except (TypeError, ValueError, RecursionError, UnicodeError) as error:  # what others put into a record
            return json.dumps({**dict(list(fields.items())[:2]), "message": f"a log record was no JSON: {error!r}"})


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - values that do not fit their text, in whosever code
        with suppress(Exception):
            return f"{record.msg!r} with {record.args!r}: {error}"
        return f"a text that cannot be had: {text_of(error)}"


def of_error(error: BaseException) -> dict[str, Any]:
    """The `extra` of a record that tells of this error, without its traceback."""
    return {"leasehold": _of_error(error)}


def _of_error(error: BaseException) -> dict[str, Any]:
    said: dict[str, Any] = {"error.type": type(error).__name__, "error.message": text_of(error)}
    verdict = verdict_of(error)
    return said if verdict is None else said | {"leasehold.verdict": verdict.value}


# Notices


def action_of(notice: Notice | type[Notice]) -> str:
    """The `event.action` of a kind of `notice`: `ownership-claimed` for `OwnershipClaimed`."""
    kind = notice if isinstance(notice, type) else type(notice)
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def log_notices(notices: Notices, owner: str) -> Callable[[], None]:
    """Log each of these `notices` of the instance `owner` from now on; returns a function that ends it.

    At level INFO, those of checkpoints and those that count or time at DEBUG, since each batch has some. By the logger
    `leasehold.notices`.
    """
    return notices.subscribe(lambda notice: _log(notice, owner), to=Notice)


def _log(notice: Notice, owner: str) -> None:
    level = logging.DEBUG if isinstance(notice, CheckpointUpdated | Measurement) else logging.INFO
    if not logger.isEnabledFor(level):
        return
    action = action_of(notice)
    fields: dict[str, Any] = {"event.action": action, "owner": owner}
    said = []
    for field in dataclasses.fields(notice):
        value = getattr(notice, field.name)
        if isinstance(value, BaseException):
            fields |= _of_error(value)
        elif field.name == "partition":
            fields["partition"] = value
        else:
            value = list(value) if isinstance(value, tuple) else value
            fields[f"leasehold.{field.name}"] = value
        said.append(f"{field.name.replace('_', ' ')} {text_of(value) if value not in ('', []) else '-'}")
    logger.log(level, "%s", f"{action.replace('-', ' ')}: {', '.join(said)}", extra={"leasehold": fields})
