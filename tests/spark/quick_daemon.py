"""Leasehold's daemon of Spark's Python workers, which has imported before it forks what each worker would import.

A worker that it forks costs a tenth of the CPU, and each task that fails or is cancelled costs a worker: tests of what
cannot be computed start a hundred. What is imported is what tasks need, as in the warm-up of a loop
(`leasehold.spark.loop.warming`), and the libraries below it. Programs that tests start have the daemon itself.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 -- imported for those that are forked, as are all the others
import importlib
import sqlite3  # noqa: F401

import pyarrow.compute
import pyarrow.pandas_compat  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.sql.pandas.types
import pyspark.worker  # noqa: F401

import leasehold.formats
import leasehold.hubs.log.hub
import leasehold.spark.loop.classic_jobs
import leasehold.spark.loop.tasks
from leasehold.spark.session.daemon import main
from leasehold.spark.session.versions import has_source

importlib.import_module("pandas")  # so that nobody asks for its types
if has_source():
    import leasehold.spark.stream.data_source  # noqa: F401

if __name__ == "__main__":
    main()
