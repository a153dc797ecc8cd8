"""Lets Spark find `format("leasehold")` by itself.

Spark looks for installed modules whose name begins with `pyspark_` and registers their `DefaultSource`, so a
session needs no call to `leasehold.spark.register`. Where the source cannot work, what Spark finds says so when it is
used.
"""

from leasehold.spark.stream.registration import found_by_spark

DefaultSource = found_by_spark()

__all__ = ["DefaultSource"]
