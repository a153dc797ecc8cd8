"""`leasehold leases`: shows who holds which lease in a store, and frees those whose holder is gone."""

from __future__ import annotations

import click

from leasehold.backends import masked
from leasehold.cli.init import check_lasting
from leasehold.cli.options.waiting import patiently, wait_option
from leasehold.cli.output import Column, Output, Result, ResultTable, output_option
from leasehold.errors import UsageError
from leasehold.leases.key_turns import place_of, whose_place
from leasehold.printable import counted, span
from leasehold.stores.lease_base import LeaseStatus, LeaseStore


def _remaining(seconds: float | None) -> str:
    return "unknown" if seconds is None else span(seconds)


_COLUMNS = (
    Column("scope", "Scope"),
    Column("key", "Key"),
    Column("holder", "Holder"),
    Column("waits", "Waits"),
    Column("fence", "Fence", right=True, text=str),
    Column("remaining", "Left unless renewed", right=True, text=_remaining),
)


@click.group(short_help="Show who holds which lease, or free one whose holder is gone.")
def leases() -> None:
    """Show who holds which lease, or free one whose holder is gone.

    STORE is the URL of a store of leases: sqlite://, postgresql://, redis://, azblob:// or aztable://.

    \b
    Example:
      leasehold leases list redis://db.example
      leasehold leases break redis://db.example --scope billing order-42
    """


@leases.command("list")
@click.argument("url", metavar="STORE_URL")
@click.option("--scope", metavar="NAME", help="Only the leases of this scope.")
@click.option("--most", type=click.IntRange(min=1), default=1000, show_default=True, help="How many at most.")
@wait_option
@output_option
def list_(url: str, scope: str | None, most: int, wait: float, output: Output) -> None:
    """Show the leases that are held now.

    Left is for how long the store keeps a lease whose holder does not renew it, by the store's clock; on Azure Blob
    Storage it is unknown. Who waits for a key and is next has a line too. Keys of more than 200 characters are cut off
    on Azure.

    \b
    Example:
      leasehold leases list postgresql://db.example/leasehold --scope billing
    """
    from leasehold.stores.lease_base import ListsLeases

    store = patiently(lambda: _opened(url), wait, masked(url))
    if not isinstance(store, ListsLeases):
        raise UsageError(f"{masked(url)}: this store cannot list its leases")
    lists = store.list_leases
    found = patiently(lambda: lists(scope, most=most), wait, masked(url))
    table = ResultTable("leases", _COLUMNS, [_row(status) for status in found])
    held = sum(whose_place(status.lease.key) is None for status in found)
    more = f", and more: only the first {most:,} are shown" if len(found) == most else ""
    summary = f"{counted(held, 'lease')} held{more}"
    output.show(Result(summary=summary, facts={"store": masked(url)}, table=table))


@leases.command("break")
@click.argument("url", metavar="STORE_URL")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option("--scope", metavar="NAME", required=True, help="The scope that the keys are in.")
@wait_option
@output_option
def break_(url: str, keys: tuple[str, ...], scope: str, wait: float, output: Output) -> None:
    """Free keys, whoever holds them.

    For a holder that hangs and goes on renewing, or has a long duration and is gone. The holder is not told: its next
    renewal, a third of its duration later at the most, finds out. Until then it works on, and only what refuses lower
    fences keeps it out: end it first where you can.

    \b
    Example:
      leasehold leases break redis://db.example --scope billing order-42 order-43
    """
    store = patiently(lambda: _opened(url), wait, masked(url))
    places = [place_of(key) for key in keys]
    broken = patiently(lambda: store.break_leases(scope, [*keys, *places]), wait, masked(url))
    rows = [_row(LeaseStatus(lease, None)) for lease in broken if whose_place(lease.key) is None]
    free = sorted(set(keys) - {lease.key for lease in broken})
    said = f"; nobody held {', '.join(repr(key) for key in free)}" if free else ""
    table = ResultTable("broken", _COLUMNS[:-1], [row[:-1] for row in rows])
    output.show(Result(summary=f"{counted(len(rows), 'lease')} broken{said}", facts={"free": free}, table=table))


def _opened(url: str) -> LeaseStore:
    from leasehold.stores import open_lease_store
    from leasehold.stores.base import TellsWhetherMade

    check_lasting(url)
    store = open_lease_store(url)
    if isinstance(store, TellsWhetherMade) and not store.is_made():
        raise UsageError(
            f"there are no leases at {masked(url)}: nobody has used any there yet, or the URL is another than theirs"
        )
    return store


def _row(status: LeaseStatus) -> tuple[object, ...]:
    lease = status.lease
    waits = whose_place(lease.key)
    holder = (lease.session.owner, "") if waits is None else ("", lease.session.owner)
    return lease.scope, lease.key if waits is None else waits, *holder, lease.fence, status.remaining
