"""What a handler may answer beside the new state: events to be sent, and rows of related tables.

    return Effects({"total": total}, [Emit({"order_id": event.key, "total": total}, key=event.key)])
    return Effects({"total": total}, [Row("lines", {"order_id": event.key, "line": 1}, keys=["order_id", "line"])])

Owns these words, and the form in which what they hold is kept. Pure. What an answer holds takes effect with the state,
in the batch's one transaction, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leasehold.errors import UsageError
from leasehold.sinks.rules.related import Gone, Row
from leasehold.sinks.rules.values import text_in_json

__all__ = ["Effects", "Emit", "Gone", "Row"]


@dataclass(frozen=True, slots=True, init=False)
class Emit:
    """An event to be sent, to where the outbox of the handler's table sends (`Writes(outbox=…)`).

    body         bytes, or text, or a dict or list, which becomes JSON: decimals, dates and times in it become text
    key          the partition key, as text or a whole number: events of one key keep their order. Default: all of
                 those without one go to one partition
    properties   of the event, from text to text

    Raises `UsageError` for what can be no event.
    """

    body: bytes
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __init__(
        self,
        body: bytes | str | Mapping[str, Any] | list[Any],
        key: str | int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        stated = dict(properties or {})
        if not (key is None or isinstance(key, str | int)) or isinstance(key, bool):
            raise UsageError(f"Emit(key={key!r}): a key is text or a whole number")
        if not all(isinstance(text, str) for pair in stated.items() for text in pair):
            raise UsageError(f"Emit(properties={stated!r}): they map text to text")
        object.__setattr__(self, "body", _bytes_of(body))
        object.__setattr__(self, "key", None if key is None else _checked(str(key)))
        object.__setattr__(self, "properties", {_checked(name): _checked(text) for name, text in stated.items()})


@dataclass(frozen=True, slots=True)
class Effects:
    """A handler's answer: a state, `Delete()` or `Skip()`, and what takes effect with it, in this order."""

    state: Any
    effects: Iterable[Emit | Row | Gone] = ()


def parts(answer: Any) -> tuple[Any, list[Emit], list[Row | Gone]]:
    """An answer as the state, events to be sent and related rows. Raises `UsageError` for what is not an effect."""
    if not isinstance(answer, Effects):
        return answer, [], []
    effects = list(answer.effects)
    for one in effects:
        if not isinstance(one, Emit | Row | Gone):
            raise UsageError(f"Effects(state, [{type(one).__name__}, …]): it holds Emit(…), Row(…) and Gone(…)")
    rows = [one for one in effects if not isinstance(one, Emit)]
    return answer.state, [one for one in effects if isinstance(one, Emit)], rows


def _bytes_of(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if isinstance(body, str):
        return _checked(body).encode()
    if not isinstance(body, Mapping | list):
        raise UsageError(f"Emit({type(body).__name__}): a body is bytes, text, a dict or a list")
    try:
        said = json.dumps(body, default=text_in_json, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UsageError(f"Emit: the body is no JSON: {error}") from error
    return _checked(said).encode()


def _checked(text: str) -> str:
    """The text, if it is one that every database and hub takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"Emit: {text[:50]!r} is no text: {error.reason}") from error
    if "\0" in text:
        raise UsageError(f"Emit: {text[:50]!r} has a NUL in it, which databases do not keep as text")
    return text
