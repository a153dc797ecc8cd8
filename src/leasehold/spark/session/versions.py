"""Which PySpark is here, and what one has that another lacks.

Owns every line that depends on PySpark's version: the range that Leasehold works with, which Java each release runs
on, a DataFrame as an Arrow table, the types and settings that not all of them have. Promises that a PySpark outside
of the range is named before anything else is done, with the way out, and that what a release lacks is refused by
name. Goes by what is there wherever that can be looked at, and not by the number: platforms put parts of later
releases into their own. The number decides where there is nothing to look at yet.

Importing this module imports no PySpark.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from leasehold.errors import ConfigError, MissingDependency, SchemaMismatch, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

logger = logging.getLogger(__name__)


class Release(NamedTuple):
    """A minor release of Spark: 4.3.0 and 4.3.1 are both 4.3."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST, NEWEST = Release(3, 5), Release(4, 3)
"""Entity tables and micro-batches work from the one to the other."""
FIRST_WITH_SOURCE = Release(4, 2)
"""The first with `format("leasehold")`: before, Spark tells a streaming reader neither where to start nor a limit."""

_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"


# Which session and which release


def is_connect(spark: SparkSession) -> bool:
    """Whether this session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def parse_release(version: str) -> Release:
    """The release that a version is of: 4.1 for `4.1.0.dev4`, 3.5 for `3.5.0-amzn-1`. Raises `ConfigError`."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise ConfigError("PySpark", version, "not a version", "It is what pyspark.__version__ says")
    return Release(int(match[1]), int(match[2]))


@functools.cache
def release() -> Release:
    """The release of the PySpark that is installed. Raises `MissingDependency` where there is none."""
    try:
        return parse_release(str(importlib.import_module("pyspark").__version__))
    except ModuleNotFoundError as error:
        raise MissingDependency("leasehold.spark", "spark") from error


@functools.cache
def check_release(version: Release | None = None) -> None:
    """Refuse a PySpark that is too old, and warn of one that came later than this release of Leasehold, once.

    Raises `ConfigError`, and `MissingDependency` where there is none.
    """
    version = version or release()
    fitting = f"pip install 'pyspark>={OLDEST},<{NEWEST.major}.{NEWEST.minor + 1}'"
    if version < OLDEST:
        raise ConfigError(
            "PySpark",
            str(version),
            f"Leasehold works with PySpark {OLDEST} to {NEWEST}",
            f"Install one of these: {fitting}",
        )
    if version < (4, 0) and importlib.util.find_spec("distutils") is None:
        raise ConfigError(
            "PySpark",
            str(version),
            f"needs the module distutils, which Python {sys.version_info.major}.{sys.version_info.minor} lacks",
            "pip install setuptools, which brings it, or use Python 3.11",
        )
    if version > NEWEST:
        logger.warning(
            "PySpark %s is later than what this release of Leasehold was tested with (%s to %s). Look for a later "
            "release of Leasehold, or: %s",
            version,
            OLDEST,
            NEWEST,
            fitting,
        )


# What a release runs on, and with


def newest_java(version: Release) -> int | None:
    """The newest major version of Java that a release runs on; None where each one does that was tried.

    Arrow in 3.5 does not know Java 21. Hadoop in 4.0 and 4.1 asks Java for what has been removed from it since.
    """
    if version < (4, 0):
        return 17
    return 21 if version < (4, 2) else None


def session_defaults(version: Release) -> dict[str, str]:
    """The settings that take an empty trigger from 146-309 ms to 58-200 ms, by the names that they have there."""
    package = "org.apache.spark.sql.execution.streaming." + ("checkpointing." if version >= (4, 1) else "")
    settings = {_CHECKPOINT_FILES: f"{package}FileSystemBasedCheckpointFileManager"}
    if version >= (4, 1):
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    return settings


# The source


def check_source() -> None:
    """Refuse `format("leasehold")` where Spark's Python data sources cannot do what it needs. Raises `ConfigError`."""
    check_release()
    if not has_source():
        raise ConfigError(
            'format("leasehold")',
            None,
            f"needs PySpark {FIRST_WITH_SOURCE} or newer, and this is {release()}, whose streaming readers are told "
            "neither where a batch starts nor how large it may be",
            "Use leasehold.spark.MicroBatches, the loop of leasehold run, or: pip install "
            f"'pyspark>={FIRST_WITH_SOURCE}'",
        )


def has_source() -> bool:
    """Whether `format("leasehold")` works here."""
    try:
        limits: Any = importlib.import_module("pyspark.sql.streaming.datasource")
    except ModuleNotFoundError:
        return False
    return all(hasattr(limits, name) for name in ("ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"))


# Types and tables


def types_named(*names: str) -> tuple[type[DataType], ...]:
    """Those of these classes of `pyspark.sql.types` that there are here."""
    home = importlib.import_module("pyspark.sql.types")
    return tuple(getattr(home, name) for name in names if hasattr(home, name))


def nullable(schema: StructType) -> StructType:
    """The same columns, of which any value may be null, at any depth but for the keys of maps.

    Spark's word that a field is never null counts where its struct is there; Arrow's counts below a null as well.
    What has no type within an array, a struct or a map, as in `array()`, is text there: Arrow has no keys, and casts no
    items, that have none.
    """
    from pyspark.sql import types as T  # noqa: N812 -- its name in every Spark program

    def freed(type_: DataType) -> DataType:
        if isinstance(type_, T.UserDefinedType):
            return freed(type_.sqlType())
        if isinstance(type_, T.StructType):
            return T.StructType([field(each, within(each.dataType)) for each in type_])
        if isinstance(type_, T.ArrayType):
            return T.ArrayType(within(type_.elementType))
        if isinstance(type_, T.MapType):
            return T.MapType(within(type_.keyType), within(type_.valueType))
        return type_

    def within(type_: DataType) -> DataType:
        return T.StringType() if isinstance(type_, T.NullType) else freed(type_)

    def field(column: T.StructField, type_: DataType) -> T.StructField:
        return T.StructField(column.name, type_, metadata=column.metadata)

    return T.StructType([field(each, freed(each.dataType)) for each in schema])


def arrow_schema(schema: StructType) -> pa.Schema:
    """What a DataFrame of this schema is in Arrow: timestamps are in UTC, and any value may be null (`nullable`)."""
    from pyspark.sql.pandas import types

    convert: Any = types.to_arrow_schema
    told = "timezone" in inspect.signature(convert).parameters  # from 4.2 on it has to be; before, it is UTC anyway
    found: pa.Schema = convert(nullable(schema), timezone="UTC") if told else convert(nullable(schema))
    return found


def no_rows_of(df: DataFrame) -> pa.Table:
    """What `to_arrow` gives of a DataFrame without rows, with no job; of a stream too."""
    return arrow_schema(schema_of(df)).empty_table()


def schema_from_ddl(ddl: str) -> DataType:
    """What `ddl` describes, for example `id STRING, delay DOUBLE`. Needs a session. Raises what Spark raises."""
    from pyspark.sql import types as T  # noqa: N812 -- its name in every Spark program

    if hasattr(T.StructType, "fromDDL"):
        return T.StructType.fromDDL(ddl)
    read: Any = T._parse_datatype_string  # what it was in 3.5
    parsed: DataType = read(ddl)
    return parsed


def schema_of(df: DataFrame) -> StructType:
    """The schema of `df`. Raises `SchemaMismatch` for a type that this Spark has and its Python has not."""
    from pyspark.errors import PySparkValueError

    try:
        return df.schema
    except PySparkValueError as error:  # 3.5 of a calendar interval
        raise SchemaMismatch(
            f"PySpark {release()} does not know the type of a column: {str(error).splitlines()[0]} Cast it to a string."
        ) from error


def to_arrow(df: DataFrame) -> pa.Table:
    """The rows of `df`, computed now, as an Arrow table whose types follow from its schema (`arrow_schema`).

    Also over Spark Connect, from 4.0 on. Raises what Spark raises, `SchemaMismatch` for a struct with two fields of
    one name, and `UsageError` over Spark Connect 3.5. Spark's own `toArrow` would refuse rows with a null above a field
    that is never null, and arrays and maps of no type.
    """
    collect = _collecting(df)
    schema = schema_of(df)
    twice = sorted(set(_names_given_twice(schema)))
    if twice:
        raise SchemaMismatch(f"a struct has two fields of the name {', '.join(twice)}: rename one of them")
    wanted, found = arrow_schema(schema), collect()
    return wanted.empty_table() if found is None else found.cast(wanted)


def _collecting(df: Any) -> Callable[[], pa.Table | None]:
    """What computes the rows of a DataFrame, in the types of the JVM; it returns None where no task has told of any."""
    import pyarrow as pa

    def of_batches() -> pa.Table | None:
        batches = df._collect_as_arrow()
        return pa.Table.from_batches(batches) if batches else None

    def over_connect() -> pa.Table:
        table: pa.Table = df._to_table()[0]
        return table

    if hasattr(type(df), "_collect_as_arrow"):  # of the class: a DataFrame looks for a column of that name
        return of_batches
    if hasattr(type(df), "_to_table"):
        return over_connect
    raise UsageError(
        f"Spark Connect in PySpark {release()} cannot give a DataFrame as an Arrow table. Use PySpark 4.0 or "
        "newer on both sides, or a session that is not a remote one."
    )


def _names_given_twice(type_: DataType, *, inside: bool = False) -> Iterator[str]:
    """Names that two fields of one struct have; those of the columns themselves do not count."""
    from pyspark.sql import types as T  # noqa: N812 -- its name in every Spark program

    if isinstance(type_, T.StructType):
        if inside:
            yield from (name for name in type_.names if type_.names.count(name) > 1)
        for field in type_:
            yield from _names_given_twice(field.dataType, inside=True)
    elif isinstance(type_, T.ArrayType):
        yield from _names_given_twice(type_.elementType, inside=True)
    elif isinstance(type_, T.MapType):
        yield from _names_given_twice(type_.keyType, inside=True)
        yield from _names_given_twice(type_.valueType, inside=True)
