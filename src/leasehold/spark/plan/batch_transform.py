"""What a pipeline does to each micro-batch on its way to the table.

Owns the order of things: the tasks turn bodies into columns (`leasehold.formats`) and set aside what they cannot read,
then comes the user's transform. The same code makes the dry run at the start, in which Spark resolves and checks
everything, and each batch.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from leasehold.errors import ConfigError, LeaseholdError, UsageError
from leasehold.formats import BodyReader
from leasehold.pipeline_file import PipelineFile
from leasehold.settings.names import naming
from leasehold.spark.plan.bodies import added_by, body_reader, body_schema
from leasehold.spark.plan.options import COLUMNS
from leasehold.spark.plan.reading import REASON, schema_of
from leasehold.spark.plan.transform import Transform, python_transform, sql_transform
from leasehold.spark.session.empty import opaque
from leasehold.spark.session.versions import is_connect


class BatchTransform:
    """The `[transform]` of a pipeline file. Making one needs a Spark session, for the schema."""

    def __init__(self, file: PipelineFile, spark: SparkSession) -> None:
        self._path = file.path
        self._spark = spark
        section = file.transform
        self._transform: Transform = lambda events: events
        self._key = "transform"
        with naming(f"{file.path}: "):
            self._schema = None
            self._how = file.body_format
            if section.schema is not None:
                self._schema = body_schema(section.schema, COLUMNS, name="transform.schema", adds=added_by(self._how))
            if section.sql is not None:
                self._transform, self._key = sql_transform(section.sql), "transform.sql"
            elif section.python is not None:
                self._transform, self._key = python_transform(section.python, file.folder), "transform.python"

    def __call__(self, events: DataFrame) -> DataFrame:
        """Transform events whose bodies have been read. Nothing is computed yet. Raises `UsageError`."""
        transformed = self._transform(events)
        if not hasattr(transformed, "sparkSession"):
            raise UsageError(
                f"{self._path}: {self._key}: the function has returned a {type(transformed).__name__}, and not a "
                "DataFrame. Is there a way through it without a return?"
            )
        return transformed

    def bodies(self) -> BodyReader | None:
        """What reads the bodies, in the tasks; None where the file gives no schema."""
        if self._schema is None:
            return None
        return body_reader(self._schema, self._how)

    def read_schema(self, columns: tuple[str, ...], *, inline: bool) -> StructType:
        """What the tasks give: the schema's columns, then these of the source."""
        source = body_schema(schema_of(columns), ())
        fields = [*(self._schema.fields if self._schema is not None else []), *source.fields]
        return StructType([*fields, StructField(REASON, StringType())] if inline else fields)

    def dry_run(self) -> DataFrame:
        """The result for no events, for its schema and plan. Raises `ConfigError` or `UsageError`."""
        nothing = opaque(self._spark, self.read_schema(COLUMNS, inline=False))
        try:
            transformed = self(nothing)
            _ = transformed.schema
        except (LeaseholdError, Py4JError, ConnectionError):
            raise
        except PySparkException as error:
            raise ConfigError(
                f"{self._path}: {self._key}", None, f"Spark refuses it: {error}", "Its input is the view events"
            ) from None
        except SystemExit as error:
            raise ConfigError(
                f"{self._path}: {self._key}", None, f"it ends the program ({error!r})", "Let it raise an exception"
            ) from None
        except Exception as error:
            raise ConfigError(
                f"{self._path}: {self._key}",
                None,
                f"it raises {type(error).__name__}: {error}",
                "It is called with one DataFrame, of the columns that events have; --debug shows where it raises",
            ) from error
        if not is_connect(self._spark):
            from leasehold.spark.plan.row_wise import check_row_wise

            check_row_wise(transformed)
        return transformed
