"""Lets Spark find `format("leasehold")` by itself.

Spark looks for installed modules whose name begins with `pyspark_` and registers their `DefaultSource`, so a
session needs no call to `leasehold.spark.register`.
"""

from leasehold.spark.source import LeaseholdDataSource as DefaultSource

__all__ = ["DefaultSource"]
