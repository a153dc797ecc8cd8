"""What is said of tables that another release has made.

Owns the two errors, for every store with tables. Nobody may use tables of a newer release. Those of an older one are
brought up to date by who writes; who only reads is refused, since that would stop the instances of the older release.
"""

from __future__ import annotations

from leasehold.errors import StoreError, UsageError


def newer(where: str, component: str, found: int, known: int) -> StoreError:
    """The error for tables that a newer release has made."""
    return StoreError(
        f"{where}: its tables for {component} have version {found}, and this release knows versions up to {known}: "
        "pip install --upgrade leasehold"
    )


def older(where: str, component: str, found: int, known: int) -> UsageError:
    """The error of who only reads, for tables that an older release has made."""
    return UsageError(
        f"{where}: its tables for {component} have version {found}, of an older release, and who only reads does not "
        f"change them. `leasehold init STORE_URL` brings them to version {known}, and so does the first instance of "
        "this release; those of the older one fail from then on, so stop them first. Until then use the older command"
    )
