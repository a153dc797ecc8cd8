"""What a `servicebus:` URL says, and with which credential the queue is opened.

Owns the forms `servicebus://NAMESPACE/QUEUE[?option=value&…]` and `servicebus://NAMESPACE/TOPIC/subscriptions/NAME`,
and the search for a credential, in this order: the option `connection_string`; the environment variable that the
option `connection_string_env` names; the variable `LEASEHOLD_SERVICE_BUS_CONNECTION_STRING` where it is for this
namespace; else what azure-identity finds. In place of a variable one with `_FILE` behind its name may name a file.
Promises that no message, `repr` or log shows a secret.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from azure.servicebus import ServiceBusClient, TransportType, parse_connection_string

from leasehold.azure.connection_strings import Strings, checked_connection_string
from leasehold.azure.credentials import default_credential
from leasehold.backends import is_host, masked, unknown_option
from leasehold.errors import ConfigError
from leasehold.queues.service_bus.prompt import PromptQueueTransport

VARIABLE = "LEASEHOLD_SERVICE_BUS_CONNECTION_STRING"

_TRY_TIMEOUT = 10.0
"""Seconds for an answer of the service, other than to a wait for messages; the client by itself waits without end."""
_FORM = "servicebus://NAMESPACE.servicebus.windows.net/QUEUE, or …/TOPIC/subscriptions/NAME"
_OPTIONS = ("connection_string", "connection_string_env", "sessions", "transport")
_WITH_SECRETS = ("connection_string", "connection_string_env")
_WITHOUT_STRING = "a queue without a connection string"
_STRINGS = Strings("Service Bus", VARIABLE, "queue", lambda text: parse_connection_string(text).entity_path)
_LOCAL = re.compile(r"(?:^|;)\s*UseDevelopmentEmulator\s*=\s*true", re.IGNORECASE)
_TRANSPORTS = {"amqp": TransportType.Amqp, "websockets": TransportType.AmqpOverWebsocket}


@dataclass(frozen=True)
class QueueAddress:
    """Where a queue or subscription is and how it is reached. Its `repr` holds no secret."""

    namespace: str
    entity: str
    """The queue, or the topic."""
    subscription: str | None = None
    transport: str = "amqp"
    sessions: bool = False
    """Whether the queue requires sessions, so that messages are received session by session."""
    _connection_string: str | None = field(default=None, repr=False)

    @property
    def path(self) -> str:
        """The queue's path within the namespace."""
        return self.entity if self.subscription is None else f"{self.entity}/subscriptions/{self.subscription}"

    @property
    def url(self) -> str:
        """The URL without secrets, and with the options that are not as usual."""
        options = {"sessions": "true" if self.sessions else "", "transport": self.transport.removeprefix("amqp")}
        said = urlencode({name: value for name, value in options.items() if value})
        return f"servicebus://{self.namespace}/{quote(self.path)}{'?' if said else ''}{said}"

    @property
    def local(self) -> bool:
        """Whether this is a server for tests and trials, by its connection string."""
        return _LOCAL.search(self._connection_string or "") is not None

    def client(self, retries: int) -> Any:
        """A client of azure-servicebus for the namespace, which makes a call that fails anew this many times."""
        options: dict[str, Any] = {"transport_type": _TRANSPORTS[self.transport], "retry_total": retries}
        options["try_timeout"] = _TRY_TIMEOUT
        if self._connection_string is not None:
            client = ServiceBusClient.from_connection_string(self._connection_string, **options)
        else:
            client = ServiceBusClient(self.namespace, default_credential(_WITHOUT_STRING, "servicebus"), **options)
        client._amqp_transport = PromptQueueTransport  # it takes none as an argument
        return client


def read_url(url: str) -> QueueAddress:
    """The address in a URL. Raises `ConfigError` and `MissingDependency`."""
    parts = urlsplit(url)
    path, namespace = unquote(parts.path).strip("/"), parts.netloc
    if not is_host(namespace) or not path or parts.fragment or "$" in path:
        raise ConfigError("queue", masked(url), _FORM, "Name namespace and queue; credentials go into the environment")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for place, option in enumerate(options):
        if option not in _OPTIONS:
            shown = unknown_option(option, list(options)[:place], _WITH_SECRETS)
            raise ConfigError("queue", masked(url), f"its options are {', '.join(_OPTIONS)}, not {shown}", "Correct it")
    transport = options.get("transport", "amqp")
    if transport not in _TRANSPORTS:
        raise ConfigError("transport", transport, f"one of {', '.join(_TRANSPORTS)}", "Correct the queue's URL")
    sessions = options.get("sessions", "false")
    if sessions not in ("true", "false"):
        raise ConfigError("sessions", sessions, "true or false", "Correct the queue's URL")
    found = re.fullmatch(r"(?P<topic>.+)/subscriptions/(?P<name>[^/]+)", path, re.IGNORECASE)
    entity, subscription = (found["topic"], found["name"]) if found else (path, None)
    string = checked_connection_string(options, os.environ, _STRINGS, namespace=namespace, entity=entity)
    return QueueAddress(namespace, entity, subscription, transport, sessions == "true", string)
