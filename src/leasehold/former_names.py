"""Modules, and names in modules, as they were called before: an import of a former name gets what is at the new place.

Owns the tables of former names, public ones alone. An import of one warns (`DeprecationWarning`), naming the new place.
A former module is a module of its own that hands every name on; classes are the same objects under both names.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER = {
    "leasehold.entities": "leasehold.leases",
    "leasehold.entities.answers": "leasehold.handlers",
    "leasehold.entities.handled_table": "leasehold.handlers",
    "leasehold.entities.handlers": "leasehold.handlers",
    "leasehold.handled": "leasehold.handlers",
    "leasehold.processor": "leasehold.processors.events",
    "leasehold.queue_processor": "leasehold.processors.queues",
    "leasehold.sinks.batch": "leasehold.sinks.rules.batch",
    "leasehold.sinks.forgetting": "leasehold.sinks.beside.forgetting",
    "leasehold.sinks.messages": "leasehold.sinks.beside.messages",
    "leasehold.sinks.messages.parking": "leasehold.sinks.beside.messages.parking",
    "leasehold.sinks.set_aside": "leasehold.sinks.beside.set_aside",
    "leasehold.sinks.table": "leasehold.sinks.rules.table",
}
"""Former names of public modules, and where what they had is now."""

FORMER_IN_MODULES = {
    ("leasehold.handlers", "handled_processor"): ("leasehold.processors", "handled_processor"),
    ("leasehold.sinks.beside.messages.parking", "ParksMessages"): ("leasehold.sinks.beside.messages", "KeepsMessages"),
}
"""Names that public modules had before, by module and name, and where each is now, and by what name."""


class FormerNames(MetaPathFinder, Loader):
    """Finds modules under their former names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname in FORMER else None

    def exec_module(self, module: ModuleType) -> None:
        place = FORMER[module.__name__]
        warnings.warn(f"{module.__name__} is {place} now", DeprecationWarning, stacklevel=2)
        module.__getattr__ = partial(getattr, importlib.import_module(place))  # type: ignore[method-assign]


def former_name(module: str, name: str) -> object:
    """What `module` had under `name` before, for the `__getattr__` of that module. Warns with the new place.

    Raises `AttributeError` where there was nothing of that name.
    """
    if (module, name) not in FORMER_IN_MODULES:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    place, now = FORMER_IN_MODULES[module, name]
    warnings.warn(f"{module}.{name} is {place}.{now} now", DeprecationWarning, stacklevel=3)
    return getattr(importlib.import_module(place), now)


def install() -> None:
    """Make former names known to imports of this process. Called more than once, it does nothing.

    They are looked up first: a folder that an earlier release has left behind would count as a package without names.
    """
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNames())
