"""Checkpoints as text: how they are written, and the formats that are read.

Owns `FORMATS`, a parser per format: from one JSON document to one checkpoint. A source is a file with a
document a line, `-` for standard input, or a folder with a document a file. Refuses a document that is not a
whole checkpoint, with its place and what is missing; nothing is guessed.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from leasehold.errors import ConfigError, UsageError
from leasehold.model import BEFORE_FIRST, HIGHEST, Checkpoint, ConsumerGroup
from leasehold.printable import excerpt
from leasehold.stores.checkpoint_data import check_data

Document = Mapping[str, object]
Parser = Callable[[Document, ConsumerGroup | None], Checkpoint]
"""From a document, and the group where it names none (or where it is to go), to a checkpoint. Raises `ValueError`."""


def as_line(checkpoint: Checkpoint) -> str:
    """The checkpoint as a line of the format `leasehold`."""
    document = {
        "namespace": checkpoint.group.namespace,
        "hub": checkpoint.group.hub,
        "consumerGroup": checkpoint.group.name,
        "partition": checkpoint.partition,
        "sequenceNumber": checkpoint.sequence_number,
        "offset": checkpoint.offset,
        "ownerLevel": checkpoint.owner_level,
        **({"data": dict(checkpoint.data)} if checkpoint.data else {}),
        **({} if checkpoint.enqueued_time is None else {"enqueuedTime": checkpoint.enqueued_time}),
    }
    return json.dumps(document, ensure_ascii=False)


def _leasehold(document: Document, group: ConsumerGroup | None) -> Checkpoint:
    stated = ConsumerGroup(text(document, "namespace"), text(document, "hub"), text(document, "consumerGroup"))
    return Checkpoint(
        group or stated,
        text(document, "partition"),
        number(document, "sequenceNumber", least=BEFORE_FIRST),
        number(document, "ownerLevel", least=0),
        None if document.get("offset") is None else _written("offset", document["offset"], "text or null"),
        _data(document.get("data")),
        _seconds(document.get("enqueuedTime")),
    )


def _seconds(value: object) -> float | None:
    """A time of a document, as far as there is one. Raises `ValueError`."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"enqueuedTime is a number of seconds since 1970, and not {value!r}")
    return float(value)


def _data(value: object) -> Mapping[str, str]:
    """A user's data, as far as there is any. Raises `ValueError`."""
    if value is None:
        return {}
    try:
        return check_data(value)
    except ConfigError as error:
        raise ValueError(f"data is {error.rule}") from None


FORMATS: dict[str, Parser] = {"leasehold": _leasehold}
"""The formats by name. `leasehold` is what `checkpoints export` writes."""


def text(document: Document, key: str) -> str:
    """A text of a document. Raises `ValueError`."""
    value = document.get(key)
    if value in (None, ""):
        raise ValueError(f"{key} is missing")
    return _written(key, value)


def _written(key: str, value: object, kind: str = "text") -> str:
    """A text that stores can keep. Raises `ValueError`."""
    if not isinstance(value, str):
        raise ValueError(f"{key} is {kind}, and not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{key} is text that can be written as UTF-8, and {value!a} has half a surrogate pair"
        ) from None
    return value


def number(document: Document, key: str, *, least: int) -> int:
    """A whole number of a document. Raises `ValueError`."""
    value = document.get(key)
    if value is None:
        raise ValueError(f"{key} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= HIGHEST:
        raise ValueError(f"{key} is a whole number from {least}, and not {value!r}")
    return value


def read_checkpoints(source: str, format_name: str, group: ConsumerGroup | None) -> list[Checkpoint]:
    """All checkpoints of a source. Raises `UsageError` for the first invalid document, or one that is there twice."""
    parse = FORMATS[format_name]
    places: dict[tuple[ConsumerGroup, str], str] = {}
    found = []
    for place, content in _documents(source):
        try:
            document = json.loads(content)
            if not isinstance(document, dict):
                raise ValueError("not a JSON object")
            checkpoint = parse(document, group)
        except (ValueError, RecursionError) as error:  # the latter for brackets in brackets without end
            why = excerpt(str(error))
            raise UsageError(f"{place}: not a checkpoint in the format {format_name}: {why}") from error
        first = places.setdefault((checkpoint.group, checkpoint.partition), place)
        if first != place:
            raise UsageError(
                f"{place}: partition {excerpt(checkpoint.partition)} of {excerpt(str(checkpoint.group))} is in {first} "
                "already. Leave one of the two out"
            )
        found.append(checkpoint)
    if not found:
        raise UsageError(f"{source}: there is no checkpoint in it")
    return found


def _documents(source: str) -> Iterator[tuple[str, str]]:
    """Each document with its place, for messages."""
    path = Path(source)
    try:
        if source == "-":
            yield from ((f"line {n} of the input", line) for n, line in enumerate(sys.stdin, 1) if line.strip())
        elif path.is_dir():
            for file in sorted(one for one in path.rglob("*") if one.is_file()):
                yield str(file), file.read_text(encoding="utf-8")
        else:
            with path.open(encoding="utf-8") as lines:
                yield from ((f"{source}, line {n}", line) for n, line in enumerate(lines, 1) if line.strip())
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: not text in UTF-8 ({error.reason})") from error
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror or error}") from error
