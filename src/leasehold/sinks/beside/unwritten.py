"""What a transaction answers that is asked for a feature which its database has not been taught yet.

Owns the methods that are called only where the sink says their feature (`sinks.features`). Each raises
`NotImplementedError` with its own name and that of the feature: a database is taught one feature after the other, and
overrides the methods of those that its sink says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from leasehold.sinks.beside.session import Places
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key

if TYPE_CHECKING:
    import pyarrow as pa

    from leasehold.sinks.rules.duplicates import Memory
    from leasehold.sinks.rules.related import EntityStep


class UnwrittenFeatures:
    """Of a transaction, what it has for features that its sink does not say."""

    def forget_key(self, key: Mapping[str, str]) -> int:
        """BOOKKEEPING: forget what is known of a key, as text; how many there were. The memory of keys is there."""
        self._unwritten("forget_key", "BOOKKEEPING")

    def clear_keys(
        self, old: Places, old_of_deleted: Places, after: tuple[object, ...] | None, at_most: int
    ) -> tuple[Sequence[tuple[Lane, int]], tuple[object, ...] | None]:
        """BOOKKEEPING: see `BesideTransaction`."""
        self._unwritten("clear_keys", "BOOKKEEPING")

    def read_states(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        """STATES: see `KeepsStates`."""
        self._unwritten("read_states", "STATES")

    def written_by(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, int]:
        """STATES: see `WritesBeside`."""
        self._unwritten("written_by", "STATES")

    def state_writer(self, schema: pa.Schema) -> Callable[[Key, Mapping[str, Any] | None], None]:
        """STATES: see `BesideTransaction`."""
        self._unwritten("state_writer", "STATES")

    def lock_versions(self, keys: Collection[Key]) -> dict[Key, int]:
        """STATES: the versions of these, which nobody else changes until the transaction ends. The table is there.

        Where a transaction has locked the whole database, that is `entities.versions`.
        """
        self._unwritten("lock_versions", "STATES")

    def write_step(self, schema: pa.Schema, step: EntityStep) -> str | None:
        """RELATED: see `WritesBeside`."""
        self._unwritten("write_step", "RELATED")

    def known_identities(self, digests: Collection[str]) -> Memory:
        """BOOKKEEPING: see `RemembersIdentities`."""
        self._unwritten("known_identities", "BOOKKEEPING")

    def remember_identities(self, memory: Memory) -> None:
        """BOOKKEEPING: see `RemembersIdentities`."""
        self._unwritten("remember_identities", "BOOKKEEPING")

    def identities_reached(self) -> int | None:
        """BOOKKEEPING: see `RemembersIdentities`."""
        self._unwritten("identities_reached", "BOOKKEEPING")

    def identities_reach(self, time: int | None) -> None:
        """BOOKKEEPING: see `RemembersIdentities`."""
        self._unwritten("identities_reach", "BOOKKEEPING")

    def forget_identities(self, before: int, at_most: int) -> None:
        """BOOKKEEPING: see `RemembersIdentities`."""
        self._unwritten("forget_identities", "BOOKKEEPING")

    def _unwritten(self, method: str, feature: str) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} has no method {method}, which is asked for where the sink says the feature "
            f"{feature}: write it, or leave {feature} out of the sink's features"
        )
