"""How a queue's messages are delivered to a handler: the settings, checked across each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

from leasehold.backoff import Backoff
from leasehold.config import check_number, default_where_none
from leasehold.errors import ConfigError

if TYPE_CHECKING:
    from leasehold.queues.keys import KeyOf
    from leasehold.stores import LeaseStore

REMEMBER = 14 * 86_400.0
"""Seconds for which a sink remembers a message that is done: as long as a queue keeps one by default."""


class BusyPolicy(StrEnum):
    """What becomes of messages whose entity is busy: leased by another process. In one process they always line up."""

    ABANDON = "abandon"
    """They are given back after a pause, a delivery counted of each, and come again, here or elsewhere."""
    WAIT = "wait"
    """They are kept, in the order of the queue, and their locks renewed; the lease is asked for again."""
    PARK = "park"
    """They wait in the sink's database, in the order of the queue, which has them no more; so does what failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDelivery:
    """Settings of a `QueueProcessor`; times in seconds.

    key              where a message's entity is named: `session`, `partition-key`, `message-id`, a property's name, or
                     a function of the message. None: the handler's keys in the body; with sessions, the session id
    holder           who holds leases, for people. None: host and process id
    lease_duration   after which time another process may work on the entity of one that died; the lease store says
                     which durations it takes
    most             messages held at once: waiting, at work, or about to be given back
    workers          handlers at once, each in a thread, each for another entity
    busy             what becomes of a message whose entity is busy, and of one that failed
    wait_at_most     under `wait`, after which time messages of a busy entity are given back
    max_deliveries   deliveries after which a failing message is dead-lettered: at most the queue's own number, else the
                     service dead-letters it first, without a description
    first_pause      before a message is tried again or given back; doubles with each time
    longest_pause    what the pause grows to
    at_once          messages of one entity that are worked through under one lease
    session_turn     how long a worker stays with a session that has messages all the time, before the others have their
                     turn; for a queue that requires sessions
    handler_timeout  how long a call of the handler may take; then it is called in processes of its own. None: for ever
    remember         for how long the sink remembers what is done: longer than the queue keeps a message
    deduplicate_by   what a sender names a message by that it may send twice: `message_id`, or a property's name. The
                     second has no effect; a message without it, or with an empty one, is never a duplicate
    deduplicate_for  for how long after the first a second one is a duplicate

    Raises `ConfigError`.
    """

    key: str | KeyOf | None = None
    holder: str | None = None
    lease_duration: float = 30.0
    most: int = 100
    workers: int = 8
    busy: BusyPolicy | str = BusyPolicy.WAIT
    wait_at_most: float = 300.0
    max_deliveries: int = 10
    first_pause: float = 0.1
    longest_pause: float = 30.0
    at_once: int = 50
    session_turn: float = 60.0
    handler_timeout: float | None = None
    remember: float = REMEMBER
    deduplicate_by: str | None = None
    deduplicate_for: float = REMEMBER

    def __post_init__(self) -> None:
        default_where_none(self)
        if self.busy not in tuple(BusyPolicy):
            raise ConfigError("busy", self.busy, f"one of {', '.join(BusyPolicy)}", "wait is the default")
        object.__setattr__(self, "busy", BusyPolicy(self.busy))
        for name in ("most", "workers", "max_deliveries", "at_once"):
            check_number(name, getattr(self, name), least=1, rule="a whole number from 1")
        waits = ("wait_at_most", "first_pause", "longest_pause", "session_turn")
        for name in ("lease_duration", *waits, "remember", "deduplicate_for"):
            check_number(name, getattr(self, name), above=0, rule="seconds above 0")
        if self.deduplicate_by == "":
            raise ConfigError("deduplicate_by", "", "message_id, or the name of a property", "Leave it out for none")
        if self.longest_pause < self.first_pause:
            rule = f"at least first_pause ({self.first_pause:g})"
            raise ConfigError("longest_pause", self.longest_pause, rule, "Make it longer, or first_pause shorter")


def pause(settings: QueueDelivery, times: int, rng: Random) -> float:
    """Seconds before the next try, after this many in vain."""
    return Backoff(settings.first_pause, settings.longest_pause).pause(times, rng.random())


def for_sessions(settings: QueueDelivery, lease_store: str | LeaseStore | None) -> QueueDelivery:
    """The settings with the session id as the key. Raises `ConfigError` for what sessions leave no choice of."""
    if lease_store is not None:
        rule = "None for a queue that requires sessions: a session's lock is its entity's lease"
        raise ConfigError("lease_store", None, rule, "Give None")
    if settings.key not in (None, "session"):
        rule = "the session id, for a queue that requires sessions: only its messages are kept in order"
        raise ConfigError("key", settings.key if isinstance(settings.key, str) else None, rule, "Leave key out")
    if settings.busy is not BusyPolicy.WAIT:
        rule = "wait, for a queue that requires sessions: a message that was given back would be overtaken"
        raise ConfigError("busy", str(settings.busy), rule, "Leave busy out")
    return replace(settings, key="session")
