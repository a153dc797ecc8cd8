"""The transport of azure-eventhub, whose handlers take the steps of a handshake without pauses (`azure.handshakes`).

Owns which handlers that is: those for questions, receivers and senders. All else is the client's own.
"""

from __future__ import annotations

from typing import Any

from azure.eventhub._transport._pyamqp_transport import PyamqpTransport

from leasehold.azure.handshakes import prompt


class PromptHubTransport(PyamqpTransport):
    """What a client of azure-eventhub is given as `amqp_transport`."""

    @staticmethod
    def create_mgmt_client(*args: Any, **options: Any) -> Any:
        """As the client's own, and prompt."""
        return prompt(PyamqpTransport.create_mgmt_client(*args, **options))  # type: ignore[no-untyped-call]

    @staticmethod
    def create_receive_client(*args: Any, **options: Any) -> Any:
        """As the client's own, and prompt."""
        return prompt(PyamqpTransport.create_receive_client(*args, **options))

    @staticmethod
    def create_send_client(*args: Any, **options: Any) -> Any:
        """As the client's own, and prompt."""
        return prompt(PyamqpTransport.create_send_client(*args, **options))
