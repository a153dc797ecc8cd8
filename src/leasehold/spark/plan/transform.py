"""Between source and sink: the user's SQL or function, row by row.

Owns what a transform may be called and where it is found. Bodies have been read by then (`leasehold.formats`); that a
transform is row-wise is checked on its plan (`row_wise.check_row_wise`).

Refused: an aggregate, a join, a window, a stateful operator, a sort or a limit in the transform. A replayed or
re-cut range would give them other rows to work on, and the result would not be the same again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from leasehold.errors import ConfigError
from leasehold.handlers.named_functions import function_at

VIEW = "events"


Transform = Callable[[DataFrame], DataFrame]


_naming = threading.Lock()


def sql_transform(sql: str) -> Transform:
    """A transform that runs a query over the view `events`.

    A session has one view of that name: of two runs in one session, each names its own and has its query resolved
    before the other does.
    """

    def transform(events: DataFrame) -> DataFrame:
        with _naming:
            events.createOrReplaceTempView(VIEW)
            return events.sparkSession.sql(sql)

    return transform


def python_transform(reference: str, folder: Path) -> Transform:
    """The function `module:function` of one DataFrame, looked for in `folder` first. Raises `ConfigError`."""
    imported, function = function_at(reference, folder, "transform.python", "flights:clean")
    if not callable(function):
        raise ConfigError("transform.python", reference, "not a function", "Name a function of one DataFrame")
    # Its functions of rows go to the workers whole: they need not be able to import the module.
    cloudpickle.register_pickle_by_value(imported)  # type: ignore[no-untyped-call]
    transform: Transform = function
    return transform
