"""Between source and sink: the user's SQL or function, row by row.

Owns what a transform may be called and where it is found. Bodies have been read by then (`leasehold.formats`); that a
transform is row-wise is checked on its plan (`classic.check_row_wise`).

Refused: an aggregate, a join, a window, a stateful operator, a sort or a limit in the transform. A replayed or
re-cut range would give them other rows to work on, and the result would not be the same again.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from leasehold.errors import ConfigError

VIEW = "events"


Transform = Callable[[DataFrame], DataFrame]


def sql_transform(sql: str) -> Transform:
    """A transform that runs a query over the view `events`."""

    def transform(events: DataFrame) -> DataFrame:
        events.createOrReplaceTempView(VIEW)
        return events.sparkSession.sql(sql)

    return transform


def python_transform(reference: str, folder: Path) -> Transform:
    """The function `module:function` of one DataFrame, looked for in `folder` first. Raises `ConfigError`."""
    module, found, name = reference.partition(":")
    if not found or not module or not name:
        raise ConfigError("transform.python", reference, "written as module:function", "For example flights:clean")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        imported = importlib.import_module(module)
        function: Any = getattr(imported, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            "transform.python", reference, f"cannot be imported ({error})", f"Put {module}.py into {folder}"
        ) from error
    except Exception as error:
        raise ConfigError(
            "transform.python",
            reference,
            f"cannot be imported ({type(error).__name__}: {error})",
            f"Correct {module}.py: `python -m {module}` shows where",
        ) from error
    if not callable(function):
        raise ConfigError("transform.python", reference, "not a function", "Name a function of one DataFrame")
    # Its functions of rows go to the workers whole: they need not be able to import the module.
    cloudpickle.register_pickle_by_value(imported)  # type: ignore[no-untyped-call]
    transform: Transform = function
    return transform
