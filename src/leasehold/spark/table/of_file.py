"""The entity tables that a pipeline file names."""

from __future__ import annotations

from leasehold.errors import ConfigError
from leasehold.pipeline_file import PipelineFile
from leasehold.settings.names import naming
from leasehold.spark.table.entity_table import EntityTable
from leasehold.spark.table.settings import RowRules, Writing
from leasehold.spark.table.several import EntityTables


def tables_of(file: PipelineFile) -> EntityTable | EntityTables:
    """The table of a file, or all that one transaction fills. Raises `ConfigError` that names file and key."""
    each = [table_of(one) for one in file.tables]
    return each[0] if len(each) == 1 else EntityTables(each)


def table_of(file: PipelineFile) -> EntityTable:
    """The only table of a file, with what `[source]` says of events. Raises `ConfigError` that names file and key."""
    sink, source = file.sink, file.source
    if sink.handler is not None:
        raise ConfigError(
            f"{file.path}: {file.at}.handler",
            sink.handler,
            "only its handler writes to the table",
            "leasehold rejected retry has its owners call the handler again",
        )
    with naming(f"{file.path}: {file.at}."):
        return EntityTable(
            file.sink_url,
            sink.table,
            pipeline=file.name,
            keys=sink.keys,
            mode=sink.mode,
            consumer_group=source.consumer_group,
            rules=RowRules(
                when=sink.when,
                sequence_by=sink.sequence_by,
                delete_when=sink.delete_when,
                on_two_partitions=sink.on_two_partitions,
                deduplicate_by=source.deduplicate_by,
                deduplicate_for=file.deduplicate_for,
            ),
            writing=Writing(
                keep=sink.keep,
                only_columns=sink.only_columns,
                except_columns=sink.except_columns,
                unavailable_value=sink.unavailable_value,
                schema_evolution=sink.schema_evolution,
            ),
        )
