"""What a sink may do beside `Sink`: the features that there are, and the one way to ask a sink for one.

Owns the list. A sink says in `features` what it has, and nobody looks at the names of its methods: a method that is
called like one of ours may be a sink's own. `offered` gives the sink typed as the protocol of a feature, `require`
raises the error that names the sink, the feature and what to do.

A protocol has the methods of a feature, and the rules of each; a class need not name it. EVOLUTION and DUPLICATES have
no methods of their own: `apply` acts on `TableSpec.schema_evolution` and `Batch.identities`. Handlers need STATES and
PARKING, and some of them VERSIONS, RELATED or OUTBOX as well. `leasehold_testkit.contracts.sinks` has the suites.
"""

from __future__ import annotations

from typing import TypeVar, cast

from leasehold.errors import ConfigError
from leasehold.sinks.base import (
    ComparesSchema,
    Features,
    KeepsStates,
    MakesTables,
    Sink,
    SinkFeature,
    TellsContents,
)
from leasehold.sinks.beside.forgetting import Forgets
from leasehold.sinks.beside.messages.contract import KeepsMessages
from leasehold.sinks.beside.outbox.contract import KeepsOutbox
from leasehold.sinks.beside.parking.contract import KeepsParked
from leasehold.sinks.beside.related import RelatesTables
from leasehold.sinks.beside.set_aside.contract import KeepsRejected
from leasehold.sinks.beside.skipping.contract import SkipsEvents
from leasehold.sinks.beside.versions import KeepsVersions

__all__ = [
    "ALL",
    "COMPARISON",
    "CONTENTS",
    "DUPLICATES",
    "EVOLUTION",
    "FORGETTING",
    "MAKING",
    "MESSAGES",
    "OUTBOX",
    "PARKING",
    "REJECTED",
    "RELATED",
    "SKIPPING",
    "STATES",
    "VERSIONS",
    "Features",
    "SinkFeature",
    "offered",
    "require",
]

P = TypeVar("P")

CONTENTS: SinkFeature[TellsContents] = SinkFeature("CONTENTS", "says how much its table holds", TellsContents)
COMPARISON: SinkFeature[ComparesSchema] = SinkFeature(
    "COMPARISON", "says whether its table could be written to, and changes nothing for it", ComparesSchema
)
EVOLUTION: SinkFeature[Sink] = SinkFeature("EVOLUTION", "adds the columns that its table has not, if asked to", Sink)
MAKING: SinkFeature[MakesTables] = SinkFeature(
    "MAKING", "makes its tables ahead of time, and says which statements do", MakesTables
)
DUPLICATES: SinkFeature[Sink] = SinkFeature("DUPLICATES", "leaves out events that a producer has sent twice", Sink)
REJECTED: SinkFeature[KeepsRejected] = SinkFeature(
    "REJECTED", "lists rejected events, tries them again, drops them, and counts what is set aside", KeepsRejected
)
SKIPPING: SinkFeature[SkipsEvents] = SinkFeature(
    "SKIPPING", "leaves out events that a person has noted, and sets them aside", SkipsEvents
)
FORGETTING: SinkFeature[Forgets] = SinkFeature(
    "FORGETTING", "forgets an entity, and clears what is old beside its table", Forgets
)
STATES: SinkFeature[KeepsStates] = SinkFeature("STATES", "gives rows back as the states of their entities", KeepsStates)
PARKING: SinkFeature[KeepsParked] = SinkFeature(
    "PARKING", "keeps events whose handler has raised, until they are tried again", KeepsParked
)
VERSIONS: SinkFeature[KeepsVersions] = SinkFeature(
    "VERSIONS", "keeps a version of each entity, whose events may be in several partitions", KeepsVersions
)
RELATED: SinkFeature[RelatesTables] = SinkFeature("RELATED", "writes rows of related tables", RelatesTables)
OUTBOX: SinkFeature[KeepsOutbox] = SinkFeature(
    "OUTBOX", "keeps events that handlers emit, until they are sent", KeepsOutbox
)
MESSAGES: SinkFeature[KeepsMessages] = SinkFeature(
    "MESSAGES", "applies messages of queues, each once, and keeps those that wait", KeepsMessages
)

ALL: Features = frozenset(
    {
        *(CONTENTS, COMPARISON, EVOLUTION, MAKING, DUPLICATES, REJECTED, SKIPPING, FORGETTING),
        *(STATES, PARKING, VERSIONS, RELATED, OUTBOX, MESSAGES),
    }
)
"""Every feature that there is."""


def offered(sink: Sink, feature: SinkFeature[P]) -> P | None:
    """The sink, as what has this feature; None where it does not say so."""
    return cast("P", sink) if feature in sink.features else None


def require(sink: Sink, feature: SinkFeature[P], needed_by: str, remedy: str = "") -> P:
    """The sink, as what has this feature. Raises `ConfigError` where it does not say so.

    `needed_by` says what was asked for, as users know it, and `remedy` what to do in place of taking another sink.
    """
    if (found := offered(sink, feature)) is None:
        raise ConfigError(
            "sink",
            None,
            f"the table {sink.spec.called} is in a {type(sink).__name__}, which does not have the feature "
            f"{feature}: a sink that has it {feature.meaning}. It is needed by {needed_by}",
            remedy or "Take SQLite or Postgres; a sink of your own says in its attribute features which it has",
        )
    return found
