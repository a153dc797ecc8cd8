"""Whether an object has the methods of a protocol, by their names and arguments.

Owns what counts as having one: it can be called as the protocol says, with all arguments and with those alone that have
no default. Types are mypy's to check.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence


def wrong_with(thing: object, protocol: type) -> Iterator[str]:
    """What of the protocol `thing` lacks, or has with other arguments: in words, one for each."""
    who = type(thing).__name__
    for name, member in _members(protocol):
        if not hasattr(thing, name):
            yield f"{who} lacks {protocol.__name__}.{name}"
        elif inspect.isfunction(member):
            own, (_, *wanted) = getattr(thing, name), inspect.signature(member).parameters.values()
            if not callable(own) or not _takes(inspect.signature(own), wanted):
                yield f"{who}.{name} cannot be called as {protocol.__name__}.{name}{inspect.signature(member)}"


def _members(protocol: type) -> Iterator[tuple[str, object]]:
    for owner in protocol.__mro__:
        if owner.__module__ not in ("builtins", "typing", "abc"):
            for name, member in vars(owner).items():
                if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    yield name, member


def _takes(own: inspect.Signature, parameters: Sequence[inspect.Parameter]) -> bool:
    for given in (parameters, [one for one in parameters if one.default is one.empty]):
        named = {one.name: None for one in given if one.kind is one.KEYWORD_ONLY}
        try:
            own.bind(*(None for one in given if one.name not in named), **named)
        except TypeError:
            return False
    return True
