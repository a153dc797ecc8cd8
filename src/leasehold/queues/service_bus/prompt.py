"""The transport of azure-servicebus, prompt, with messages kept that come between two receives, and settled together.

Its handlers take the steps of a handshake without pauses (`azure.handshakes`): those for receivers, senders, sessions
and questions. A message that comes while something else is asked of the service, since the last receive has ended
before what it asked for was there, is given to the next one: the client by itself gives it back, at two calls of the
service for nothing. What is left when a receiver is closed is given back.

The client settles one message after the other, and waits for the service's answer to each. Those that are `announced`
before have their outcomes sent all at once; then the client's own calls wait for the answers, each for its own. An
outcome that was announced and has no answer, since the link was lost, is sent again by the client, as any that is
unconfirmed, over its management link.

Messages are decoded by `decoding`: the client's own link ends at one that it cannot decode, and what it had received
and not given out yet stays locked for nothing. All else is the client's own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from azure.servicebus._pyamqp.outcomes import Accepted, Modified
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from leasehold.azure.handshakes import prompt
from leasehold.queues.service_bus.decoding import decode

COMPLETED = Accepted()
ABANDONED = Modified(delivery_failed=True, undeliverable_here=False, message_annotations=None)
_TAG = "tag"
"""Beside what the client keeps of a delivery that it waits for: numbers begin anew with each link, tags do not."""


class PromptQueueTransport(PyamqpTransport):
    """What a client of azure-servicebus is given as `amqp_transport`."""

    @staticmethod
    def create_mgmt_client(*args: Any, **options: Any) -> Any:
        """As the client's own, and prompt."""
        return prompt(PyamqpTransport.create_mgmt_client(*args, **options))

    @staticmethod
    def create_receive_client(*args: Any, **options: Any) -> Any:
        """As the client's own, prompt, and with links that no message ends."""
        return prompt(_decoding(PyamqpTransport.create_receive_client(*args, **options)))

    @staticmethod
    def mgmt_client_request(*args: Any, callback: Any, **options: Any) -> Any:
        """As the client's own, which has its own transport read the answer."""

        def read(*answer: Any, amqp_transport: object) -> Any:
            return callback(*answer, amqp_transport=PromptQueueTransport)

        return PyamqpTransport.mgmt_client_request(*args, callback=read, **options)

    @staticmethod
    def parse_received_message(message: Any, message_type: Any, **options: Any) -> list[Any]:
        """As the client's own: what was asked for over its management link."""
        locked = options.get("is_deferred_message", False)
        return [
            message_type(decode(each[b"message"]), lock_token=each.get(b"lock-token") if locked else None, **options)
            for each in (message.value or {}).get(b"messages", ())
        ]

    @staticmethod
    def enhanced_message_received(receiver: Any, frame: Any, message: Any) -> None:
        """As the client's own within a receive, at any time."""
        receiver._handler._last_activity_timestamp = time.time()
        receiver._handler._received_messages.put((frame, message))

    @staticmethod
    def settle_message_via_receiver_link(handler: Any, *args: Any, **options: Any) -> None:
        """As the client's own; of a message that was announced, only the answer is waited for."""
        client = None if handler is None else _Settling(handler)
        PyamqpTransport.settle_message_via_receiver_link(client, *args, **options)  # type: ignore[arg-type]

    @staticmethod
    def create_send_client(*args: Any, **options: Any) -> Any:
        """As the client's own, and prompt."""
        return prompt(PyamqpTransport.create_send_client(*args, **options))


def has_some(receiver: Any) -> bool:
    """Whether messages have come since the last receive."""
    return receiver._handler is not None and not receiver._handler._received_messages.empty()


def announce(receiver: Any, messages: Iterable[Any], outcome: Any) -> None:
    """Send the outcome of these messages that the receiver's link has delivered; the client is then asked for each.

    Where that fails the rest is left to the client, which finds the same.
    """
    link = None if receiver._handler is None else receiver._handler._link
    if link is None or link._is_closed or receiver._amqp_transport is not PromptQueueTransport:
        return
    for each in messages:
        if each._delivery_tag not in link._received_delivery_tags or each._is_deferred_message:
            continue
        link._pending_dispositions[each._delivery_id] = {"settled": False, "outcome": None, _TAG: each._delivery_tag}
        try:
            link._outgoing_disposition(each._delivery_id, None, each._delivery_tag, False, outcome, None)
        except Exception:  # noqa: BLE001
            del link._pending_dispositions[each._delivery_id]
            return


class _Settling:
    """The client's handler of a receiver, as it is asked to settle."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def settle_messages(self, delivery_id: int, delivery_tag: bytes, outcome: str, **options: Any) -> None:
        """As the handler's own. Once an answer was waited for, the link's list has the message no more."""
        link = self._handler._link
        pending = {} if link is None or link._is_closed else link._pending_dispositions.get(delivery_id, {})
        if pending.get(_TAG) == delivery_tag:
            link._wait_for_disposition_outcome([delivery_id], options.get("outcome_timeout"), outcome)
        else:
            self._handler.settle_messages(delivery_id, delivery_tag, outcome, **options)


def _decoding(handler: Any) -> Any:
    """The handler of a receiver, whose link, once it is made, decodes by `decoding`."""
    makes_its_link = handler._client_ready

    def client_ready() -> bool:
        ready: bool = makes_its_link()
        if handler._link is not None and "_incoming_transfer" not in vars(handler._link):
            _decode_on(handler._link)
        return ready

    handler._client_ready = client_ready
    return handler


def _decode_on(link: Any) -> None:
    """Do what the client's link does with each frame of a message."""
    parts: list[bytes] = []

    def incoming(frame: Sequence[Any]) -> None:
        number, more, payload = frame[1], frame[5], frame[11]
        link.received_delivery_id = number
        if number is not None:
            link._first_frame = frame
        if more or parts:
            parts.append(bytes(payload))
        if more:
            return
        link.current_link_credit -= 1
        link.delivery_count += 1
        link._received_delivery_tags.add(link._first_frame[2])
        message = decode(b"".join(parts) if parts else payload)
        parts.clear()
        link._process_incoming_message(link._first_frame, message)

    link._incoming_transfer = incoming
