"""What a handler opens once in a process, for all its calls there: a pool of connections, a model.

    @contextmanager
    def rates():
        with httpx.Client(base_url="https://rates.example") as client:
            yield client

    @entity(keys=["order_id"], opens=rates)
    def order(state, event, client): ...

Owns when it is opened and closed. The first call in a process opens it, under a lock; calls of other threads wait for
that, and all share it. It is closed when the table, or the processor of a queue, closes, or when its process ends in
order. A process that is killed closes nothing, and neither does a worker that Spark ends. A child of a fork opens its
own and leaves its parent's alone.

What `opens` raises is raised by the call, as if the handler had raised it, and the next call opens again.

Handlers come to a task of Spark by value, anew with each job. So one function is known by its module and name, its code
with the constants in it, and the values that it was made with: defaults and variables of the function around it. Two
functions that differ in one of these have each their own.
"""

from __future__ import annotations

import atexit
import os
import pickle
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

Opens = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class _Opened:
    value: Any
    closing: ExitStack


_lock = threading.Lock()
_opened: dict[Hashable, _Opened] = {}
_names: WeakKeyDictionary[Opens, Hashable] = WeakKeyDictionary()
"""The names of functions as they were at their first call: each event asks, and a name takes a look at all values."""


def value_of(opens: Opens) -> Any:
    """What `opens` gives in this process, opened by the first call. Raises what it raises."""
    name = _name_of(opens)
    if (found := _opened.get(name)) is not None:
        return found.value
    with _lock:
        if name not in _opened:
            closing = ExitStack()
            _opened[name] = _Opened(closing.enter_context(opens()), closing)
        return _opened[name].value


def close(opens: Opens | None) -> None:
    """Close what `opens` has given in this process, if it is open. A later call opens it again."""
    if opens is None:
        return
    with _lock:
        found = _opened.pop(_name_of(opens), None)
    if found is not None:
        found.closing.close()


def _close_all() -> None:
    for name in [*_opened]:
        with suppress(Exception):  # the process ends: what one of them raises keeps the others from nothing
            _opened.pop(name).closing.close()


def _forget() -> None:
    """A child of a fork: what is open is its parent's."""
    global _lock
    _lock = threading.Lock()
    _opened.clear()


def _name_of(opens: Opens) -> Hashable:
    try:
        return _names[opens]
    except KeyError:
        return _names.setdefault(opens, _name(opens))
    except TypeError:  # an object that has no hash, or to which there are no weak references
        return _name(opens)


def _name(opens: Opens) -> Hashable:
    """What is equal for one function in each job, and for no two functions that may give different values."""
    if isinstance(opens, partial):
        return _name(opens.func), *map(_by_value, (*opens.args, *opens.keywords.items()))
    function = getattr(opens, "__wrapped__", opens)
    named = getattr(function, "__module__", ""), getattr(function, "__qualname__", repr(function))
    if (code := getattr(function, "__code__", None)) is None:
        return named
    around = [cell.cell_contents for cell in function.__closure__ or ()]
    return named, code, *map(_by_value, (function.__defaults__, function.__kwdefaults__, *around))


def _by_value(made_with: object) -> Hashable:
    """Bytes, since values need not be hashable. What has none is known by its type."""
    with suppress(Exception):  # an object's own way of pickling may raise anything
        return pickle.dumps(made_with)
    return type(made_with).__qualname__


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget)
