"""Makes `format("leasehold")` known to Spark, or says why it is not to be had.

Owns what differs between releases of Spark in how a source gets there: `register`, and the class that Spark finds by
itself in the package `pyspark_leasehold`. Promises that looking for it never fails, also where the source cannot work:
an error there would cost the session all the Python data sources of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from leasehold.errors import UsageError
from leasehold.spark.session.versions import check_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("leasehold")` known to the session `spark`, once or again.

    Raises `ConfigError` where Spark cannot have it.
    """
    check_source()
    from leasehold.spark.stream.data_source import LeaseholdDataSource

    try:
        spark.dataSource.register(LeaseholdDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # Spark has found it by itself
            raise


def found_by_spark() -> Any:
    """The class of the source, or, where it cannot be had, one that says why as soon as it is used."""
    try:
        check_source()
        from leasehold.spark.stream.data_source import LeaseholdDataSource
    except (ImportError, UsageError):
        from leasehold.spark.stream.refused_source import RefusedDataSource

        return RefusedDataSource
    return LeaseholdDataSource
