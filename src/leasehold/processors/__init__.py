"""Processors without Spark: of a hub's events, and of a queue's messages.

What a pipeline file says is `handled_processor`'s and `projected_processor`'s, which are imported when they are first
used: they need PyArrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.processors.events.of_file import handled_processor, projected_processor

__all__ = ["handled_processor", "projected_processor"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("leasehold.processors.events.of_file"), name)
