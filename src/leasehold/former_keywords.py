"""Keywords that a function had before: a call with one gets the value that has it now.

Owns the way from former keywords to the fields of values. Promises that a call which was right before means what it
meant, and that it warns (`DeprecationWarning`) with the new spelling; type checkers see the new signature alone.
Refuses (`TypeError`) a former keyword beside the value that replaces it, and a keyword that never was one, with the
nearest that is.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Moved:
    """Former keywords of a function that are fields of one argument's value now.

    argument    of the function
    value       the class of the argument's values
    names       the former keywords, which are named as their fields
    renamed     from further former keywords to their fields
    plain       the fields that an argument of another class stands for, such as a text; None: there are only values
    older       the argument is older than these keywords: they may stand beside it, each once
    join        makes the value, of an argument of another class and the fields, where `plain` does not say enough
    """

    argument: str
    value: type[Any]
    names: tuple[str, ...] = ()
    renamed: Mapping[str, str] | None = None
    plain: Callable[[Any], Mapping[str, Any]] | None = None
    older: bool = False
    join: Callable[[Any, Mapping[str, Any]], Any] | None = None

    @property
    def fields(self) -> dict[str, str]:
        """From each former keyword to its field."""
        return {**{name: name for name in self.names}, **(self.renamed or {})}

    def spelled(self, former: Iterable[str]) -> str:
        """How these former keywords are written now."""
        stated = ", ".join(f"{self.fields[name]}=…" for name in former)
        return f"{self.argument}={self.value.__name__}({stated})"

    def joined(self, function: str, given: object, former: Mapping[str, Any]) -> object:
        """The value of the argument, of what was `given` for it and the former keywords. Raises `TypeError`.

        None has always meant a keyword's default.
        """
        stated = {self.fields[name]: one for name, one in former.items() if one is not None}
        if not stated:
            return given
        if not isinstance(given, self.value):
            if self.join is not None:
                return self.join(given, stated)
            if given is not None:
                assert self.plain is not None
                stated = {**self.plain(given), **stated}
            return self.value(**stated)
        default = {one.name: one.default for one in fields(self.value)}
        twice = [name for name in former if not self.older or getattr(given, self.fields[name]) != default[name]]
        if twice:
            raise TypeError(
                f"{function}() got {twice[0]}=… beside {self.argument}={self.value.__name__}(…), which has it now: "
                f"write {self.spelled(twice)}"
            )
        return replace(given, **stated)


def former_keywords(*moved: Moved, attributes: tuple[str, ...] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the function may be called with former keywords, as `moved` says where they are now.

    Of an `__init__` it takes the class's name, and further keywords may be `attributes` of the object now. Raises
    `TypeError` at the call.
    """
    homes = {name: one for one in moved for name in one.fields}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @wraps(function)
        def called(*arguments: P.args, **keywords: P.kwargs) -> R:
            if keywords.keys() <= signature.parameters.keys():
                return function(*arguments, **keywords)
            former = {one: keywords[one] for one in keywords if one not in signature.parameters}
            later = {one: former.pop(one) for one in attributes if one in former}
            _check_known(name, former, homes, signature)
            bound = signature.bind_partial(
                *arguments, **{one: keywords[one] for one in keywords if one in signature.parameters}
            )
            for one in moved:
                if stated := {each: former[each] for each in former if homes[each] is one}:
                    value = one.joined(name, bound.arguments.get(one.argument), stated)
                    bound.arguments[one.argument] = value
                    warnings.warn(_told(name, stated, one), DeprecationWarning, stacklevel=2)
            done = function(*bound.args, **bound.kwargs)
            for attribute, value in later.items():
                setattr(arguments[0], attribute, value)
                said = f"{name}({attribute}=…) is its attribute {attribute} now"
                warnings.warn(said, DeprecationWarning, stacklevel=2)
            return done

        return called

    return decorate


def _check_known(
    function: str, former: Iterable[str], homes: Mapping[str, Moved], signature: inspect.Signature
) -> None:
    for name in former:
        if name not in homes:
            known = [*(one for one in signature.parameters if one != "self"), *homes]
            near = get_close_matches(name, known, 1)
            hint = ""
            if near:
                [right] = near
                hint = f": did you mean {homes[right].spelled([right]) if right in homes else f'{right}=…'}?"
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def _told(function: str, former: Iterable[str], moved: Moved) -> str:
    stated = ", ".join(f"{name}=…" for name in former)
    return f"{function}({stated}) is {function}({moved.spelled(former)}) now"
