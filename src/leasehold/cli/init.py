"""`leasehold init`: makes the tables of a store on purpose, ahead of the first use and as a user who may."""

from __future__ import annotations

import click

from leasehold.backends import masked
from leasehold.cli.output import Column, Output, Result, Table, output_option
from leasehold.errors import ConfigError
from leasehold.stores.base import SchemaChange

_COLUMNS = (Column("component", "For"), Column("outcome", "What was done"), Column("version", "Version", right=True))


@click.command(short_help="Make what a store keeps its records in.")
@click.argument("url", metavar="STORE")
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds a call may take."
)
@output_option
def init(url: str, timeout: float, output: Output) -> None:
    """Make what a store keeps its records in.

    Tables for ownership and checkpoints, and those for leases, are made or brought up to date, in place; what was
    removed is made again, and what is as it should be is left alone. Instances do the same when they start. This is
    for doing it first, as a user who may make tables, so that the instances' own need not.

    \b
    Example:
      leasehold init sqlite:///flights.db
      leasehold init postgresql://admin@db.example/leasehold
    """
    from leasehold.backends import check_scheme
    from leasehold.stores import BACKENDS, LEASE_BACKENDS, open_lease_store, open_store
    from leasehold.stores.base import SchemaKeeper

    check_lasting(url)
    scheme = check_scheme(url, "store", BACKENDS | LEASE_BACKENDS, "leasehold.stores")
    stores: list[tuple[str, object]] = []
    if scheme in BACKENDS or scheme not in LEASE_BACKENDS:
        stores.append(("stores", open_store(url, timeout=timeout)))
    if scheme in LEASE_BACKENDS:
        stores.append(("leases", open_lease_store(url, timeout=timeout)))
    rows = []
    for component, store in stores:
        if isinstance(store, SchemaKeeper):
            change = store.create_schema()
            rows.append((component, *_outcome(change)))
        else:
            rows.append((component, "nothing to make", None))
    table = Table("components", _COLUMNS, rows)
    output.show(Result(summary=f"{masked(url)} is ready", facts={"store": masked(url)}, table=table))


def check_lasting(url: str) -> None:
    """Refuse a store that ends with this process: whatever a command did there would be gone when it is done."""
    if url.startswith("memory:"):
        raise ConfigError(
            "STORE",
            url,
            "a store in memory lives in one process: this command would work on one of its own, gone when it ends",
            "It needs no making; name another store to share one between processes",
        )


def _outcome(change: SchemaChange | None) -> tuple[str, int | None]:
    if change is None:
        return "made, or was there", None
    if change.before == 0:
        return "made", change.after
    if change.remade:
        again = f"made again, empty: {', '.join(change.remade)}"
        return again if change.before == change.after else f"{again}; version {change.before} before", change.after
    if change.before < change.after:
        return f"brought up from version {change.before}", change.after
    return "was there", change.after
