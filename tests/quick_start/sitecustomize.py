"""Runs first in each Python that a test starts: takes PySpark's zip off the path where the same files are installed.

Spark has its Python workers, and the process behind each streaming query, import PySpark from `pyspark.zip`. It has the
modules that the package beside it has, and nothing that is compiled: each process compiles them anew, which is half a
second of CPU. The tests start some hundreds. `conftest.py` of the repository puts this folder on PYTHONPATH.
"""

from __future__ import annotations

import sys

IN_PACKAGE = "/pyspark/python/lib/pyspark.zip"

for _zip in [entry for entry in sys.path if entry.endswith(IN_PACKAGE)]:
    _installed = _zip.removesuffix(IN_PACKAGE)
    if _installed in sys.path:  # py4j is there as well: PySpark cannot be installed without it
        _spark, _packed = f"{_installed}/pyspark/", (".zip", ".jar")
        sys.path[:] = [entry for entry in sys.path if not (entry.startswith(_spark) and entry.endswith(_packed))]
