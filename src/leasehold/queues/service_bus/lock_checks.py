"""The checks of locks that azure-servicebus makes by this machine's clock, taken away: the service decides.

The client settles no message, and renews no session, whose lock has ended by the wall clock of this machine: it raises
what the service says of a lock that was lost, and asks the service nothing. So a worker whose clock is ahead by more
than a lock's duration could complete nothing. The service answers each outcome, and the client waits for its answer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSession

from leasehold.queues.service_bus.prompt import PromptQueueTransport


class _Message(ServiceBusReceivedMessage):
    _lock_expired = False


class _Session(ServiceBusSession):
    _lock_expired = False


def service_decides(receiver: Any) -> Any:
    """This receiver of the client, not open yet, whose messages and session no clock of this machine gives up."""
    if receiver._session is not None:
        receiver._session = _Session(receiver._session_id, receiver)
    receiver._build_received_message = partial(PromptQueueTransport.build_received_message, receiver, _Message)
    return receiver
