"""Steps of a batch of a queue's messages. The rules are in `sinks.beside.messages.contract`.

Owns these steps; the list is in `steps`. What is locked is the entity's row of `leasehold_message_entity`.
"""

from __future__ import annotations

from leasehold.sinks.door.open_batch import OpenBatch
from leasehold.sinks.rules.messages import MessageStep
from leasehold.sinks.rules.table_spec import BatchResult


def fit(open_: OpenBatch) -> None:
    open_.write_state = open_.transaction.state_writer(_step(open_).schema)


def apply(open_: OpenBatch) -> BatchResult:
    assert open_.write_state is not None
    open_.lock_taken()
    outcomes = open_.transaction.apply_messages(_step(open_), open_.write_state, open_.now)
    return BatchResult(messages=tuple(outcomes))


def _step(open_: OpenBatch) -> MessageStep:
    assert open_.batch.messages is not None
    return open_.batch.messages
