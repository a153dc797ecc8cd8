"""What a handled table is given, as values: what it reads, what it writes, failures, and spread entities.

Owns these values and the plain forms of two of them. Refuses a policy that there is not; the table checks what
has to fit its schema or its sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from leasehold.body_format import BodyFormat, check_for_handlers
from leasehold.config import default_where_none
from leasehold.formats.bodies import BodyReader
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.exclusive import ExclusiveEntities
from leasehold.handlers.parking.policy import Retries, check_policy
from leasehold.stores import LeaseStore


@dataclass(frozen=True, slots=True)
class Bodies:
    """How the bodies of events, or of messages, are read.

    schema  their columns, as `order_id STRING, amount DECIMAL(12,2)`; read by the strict rules: a body that does not
            fit is rejected
    how     their format; `rescue` there is one more field of `event.row`, and so is `__deleted` of Debezium's changes,
            of which those that say nothing of a row are passed over. Default: JSON

    Raises `ConfigError` for an envelope: what is parked is kept without the headers that tell of one.
    """

    schema: str
    how: BodyFormat = field(default_factory=BodyFormat)

    def __post_init__(self) -> None:
        default_where_none(self)
        check_for_handlers(self.how)

    def reader(self) -> BodyReader:
        """What reads them. Raises `ConfigError`, `MissingDependency`."""
        return BodyReader(read_columns(self.schema, "schema"), self.how)


@dataclass(frozen=True, slots=True)
class Writes:
    """What a handler writes.

    state             the table's columns, as `order_id STRING, total DECIMAL(12,2)`; the keys among them
    related           the tables of which the handler may write rows, each as its `Row` names it: `order_lines` beside
                      this table, in Postgres also `archive.order_lines`; default: none
    outbox            URL of the hub, or queue, to which events are sent that the handler emits; default: it emits none
    schema_evolution  "add": columns of `state` that the table has not are added, null where an entity is there;
                      default: they are refused
    """

    state: str
    _: KW_ONLY
    related: Sequence[str] = ()
    outbox: str | None = None
    schema_evolution: str | None = None

    def __post_init__(self) -> None:
        default_where_none(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What becomes of events whose handler raises or hangs. Time-outs in seconds.

    on_failure         `park` (default), `discard` (set aside at once) or `wait` (its partition waits for it)
    retries            how often an event is tried, and when
    handler_timeout    how long a call may take; default: as long as it does. The handler is called in processes of its
                       own then, which import it from its module
    hand_over_timeout  that of the processor's `OwnershipSettings`: calls that hang take a third of it in a batch

    Raises `ConfigError`.
    """

    on_failure: str = "park"
    retries: Retries = field(default_factory=Retries)
    handler_timeout: float | None = None
    hand_over_timeout: float = 30.0

    def __post_init__(self) -> None:
        default_where_none(self)
        check_policy(self.on_failure)


@dataclass(frozen=True, slots=True)
class Spread:
    """An entity's events may be in several partitions.

    sequence_by  the column of the schema that grows with each event of an entity
    late         what becomes of an event that comes after a later one: `apply` (default) or `reject`
    exclusive    where entities are leased while the handler is called for them: a store's URL, or a `LeaseStore`;
                 default: they are not
    """

    sequence_by: str
    _: KW_ONLY
    late: str = "apply"
    exclusive: str | LeaseStore | ExclusiveEntities | None = None

    def __post_init__(self) -> None:
        default_where_none(self)


def bodies_of(schema: str | Bodies) -> Bodies:
    """How bodies are read: a text is a schema."""
    return schema if isinstance(schema, Bodies) else Bodies(schema)


def writes_of(state: str | Writes) -> Writes:
    """What a handler writes: a text has the columns of the state."""
    return state if isinstance(state, Writes) else Writes(state)
