"""What the source says when it refuses: the words, without the way that led to them.

Spark shows what a Python data source raises with the traceback of the worker, below that of the program. An error of
Leasehold says what was asked, what is wrong and what to do, so that traceback only hides it. Any other error keeps its
own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from leasehold.errors import LeaseholdError

P = ParamSpec("P")
R = TypeVar("R")

_HIDE = "SPARK_HIDE_TRACEBACK"
"""PySpark's: looked at once, for the error that ends the worker."""


def said_plainly(call: Callable[P, R]) -> Callable[P, R]:
    """A call of Spark's into the source whose refusals are shown as their words alone."""

    @functools.wraps(call)
    def plain(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except LeaseholdError:
            if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
                os.environ[_HIDE] = "1"
            raise

    return plain
