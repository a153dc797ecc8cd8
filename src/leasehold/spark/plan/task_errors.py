"""Errors of ours on their way from a task to the driver: as data, in one line of the text that Spark hands on.

Spark hands on a task's error as text. So a task raises a `TaskError`, whose text is a tag
and one line of JSON: the version of this form, the class, the verdict, and what the error was made of. The driver makes
the same error of it. A line of another version, or one that is spoiled, tells nothing: the failure is then an unknown
one. Nothing raises where it is read.

The error's own traceback stays in the task: it may quote an event, and an event may hold such a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from leasehold import errors
from leasehold.errors import LeaseholdError, Verdict

VERSION = 1
TAG = "leasehold-error"


class TaskError(Exception):
    """An error of ours that a task has raised, as data."""

    def __init__(self, error: LeaseholdError) -> None:
        super().__init__(f"{TAG} {_written(error)}")
        self.error = error

    def __reduce__(self) -> tuple[type[TaskError], tuple[LeaseholdError]]:
        return type(self), (self.error,)


_TYPES: dict[str, type] = {"partition": str, "owner_level": int, "events": int, "size": int}
"""What the loop reckons with, where an error has it."""
_NAME = f"{TaskError.__module__}.{TaskError.__qualname__}"


@contextmanager
def as_data() -> Iterator[None]:
    """What a task raises in this block reaches the driver as data, where it is an error of ours."""
    try:
        yield
    except LeaseholdError as error:
        raise TaskError(error) from None


def is_of_ours(raised: str) -> bool:
    """Whether the line of a traceback says that a task has raised an error of ours, of whatever version."""
    return raised.partition(":")[0] == _NAME


def error_of(raised: str) -> LeaseholdError | None:
    """The error that a task has raised, by the line of a traceback that names it; None where it tells of none."""
    name, _, line = raised.partition(f": {TAG} ")
    if name != _NAME:
        return None
    try:
        return _read(json.loads(line))
    except Exception:  # noqa: BLE001  whatever others have made of the line: nobody knows what failed
        return None


def _written(error: LeaseholdError) -> str:
    known = next(kind for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
    made_of = error.__reduce__()[1] if known is type(error) else None
    if not isinstance(made_of, tuple):
        known, made_of = _plainest(known), (str(error),)
    told = {"version": VERSION, "class": known.__name__, "verdict": error.verdict.value, "made of": made_of}
    told["message"] = str(error)  # for people
    return json.dumps(told, default=str)


def _plainest(type_: type) -> type:
    """The nearest class that is made of a text alone."""
    return next(kind for kind in type_.__mro__ if kind is LeaseholdError or "__init__" not in vars(kind))


def _read(record: dict[str, object]) -> LeaseholdError | None:
    made_of = record["made of"]
    kind = getattr(errors, str(record["class"]))
    if record["version"] != VERSION or not isinstance(made_of, list) or not issubclass(kind, LeaseholdError):
        return None
    error: LeaseholdError = kind(*made_of)
    if not all(isinstance(vars(error).get(name, type_()), type_) for name, type_ in _TYPES.items()):
        return None
    if error.verdict is not (verdict := Verdict(str(record["verdict"]))):
        error.verdict = verdict
    return error
