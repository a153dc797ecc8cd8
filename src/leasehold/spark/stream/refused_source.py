"""What `format("leasehold")` is on a Spark where it cannot work: a refusal that names what to use in its place."""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource

from leasehold.spark.session.versions import check_source


class RefusedDataSource(DataSource):
    """A source that is never read from. Spark finds it by name, and tells the user what making it raised."""

    def __init__(self, options: object) -> None:
        refuse()

    @classmethod
    def name(cls) -> str:
        return "leasehold"


def refuse() -> NoReturn:
    """Raise why there is no source here: `ConfigError` for the release, `ImportError` for a package."""
    check_source()
    import leasehold.spark.stream.data_source

    raise RuntimeError(f"{leasehold.spark.stream.data_source.__name__} can be had now: start the session anew")
