"""What an `eventhubs:` URL says, and with which credential the hub is opened.

Owns the form `eventhubs://NAMESPACE/HUB[?option=value&…]` and the search for a credential, in this order: the
option `connection_string`; the environment variable that the option `connection_string_env` names; the
variable `LEASEHOLD_EVENT_HUBS_CONNECTION_STRING` where it is for this namespace; else what azure-identity finds
(managed identity, environment, Azure CLI …). In place of a variable one with `_FILE` behind its name may name a file.
Promises that no message, `repr` or log shows a secret. What the URL says of the fleet has to be the same in all its
instances.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from azure.eventhub import TransportType, parse_connection_string

from leasehold.azure.connection_strings import Strings, checked_connection_string
from leasehold.azure.credentials import default_credential
from leasehold.backends import is_host, masked, unknown_option
from leasehold.errors import ConfigError
from leasehold.hubs.event_hubs.prompt import PromptHubTransport

VARIABLE = "LEASEHOLD_EVENT_HUBS_CONNECTION_STRING"

_FORM = "an event hub's URL is eventhubs://NAMESPACE.servicebus.windows.net/HUB"
_OPTIONS = (
    "connection_string",
    "connection_string_env",
    "consumer_group",
    "endpoint",
    "fleet",
    "status_group",
    "transport",
)
_WITH_SECRETS = ("connection_string", "connection_string_env")
"""Options that hold a connection string, the latter by mistake."""
_WITHOUT_STRING = "an event hub without a connection string"
_STRINGS = Strings("Event Hubs", VARIABLE, "hub", lambda text: parse_connection_string(text).eventhub_name)
_FLEETS = ("leasehold", "mixed")
_TRANSPORTS = {"amqp": TransportType.Amqp, "websockets": TransportType.AmqpOverWebsocket}
_SECRETS = re.compile(
    r"((?:SharedAccessKey|SharedAccessSignature|sig|password|token)\s*=\s*)[^;&\s'\"]+", re.IGNORECASE
)


@dataclass(frozen=True)
class EventHubAddress:
    """Where a hub is and how it is reached. Its `repr` holds no secret."""

    namespace: str
    hub: str
    consumer_group: str = "$Default"
    transport: str = "amqp"
    mixed: bool = False
    endpoint: str = ""
    status_group: str = ""
    _connection_string: str | None = field(default=None, repr=False)

    @property
    def hint(self) -> str:
        """What to look at first when the hub cannot be reached: nothing where a connection string was found."""
        if self._connection_string is not None:
            return ""
        return (
            f" ({VARIABLE} holds no connection string of this namespace, so that the credential is the one of "
            "azure-identity and the connection is encrypted)"
        )

    @property
    def url(self) -> str:
        """The URL without secrets, and with the options that are not as usual."""
        options = {
            "consumer_group": "" if self.consumer_group == "$Default" else self.consumer_group,
            "endpoint": self.endpoint,
            "fleet": "mixed" if self.mixed else "",
            "status_group": self.status_group,
            "transport": "" if self.transport == "amqp" else self.transport,
        }
        said = urlencode({name: value for name, value in options.items() if value})
        return f"eventhubs://{self.namespace}/{quote(self.hub)}{'?' if said else ''}{said}"

    def client(self, kind: Any, **options: Any) -> Any:
        """A producer or consumer client of azure-eventhub for this hub."""
        options.update(transport_type=_TRANSPORTS[self.transport], amqp_transport=PromptHubTransport)
        if self.endpoint:
            options["custom_endpoint_address"] = f"sb://{self.endpoint}"
        if self._connection_string is not None:
            return kind.from_connection_string(self._connection_string, eventhub_name=self.hub, **options)
        return kind(self.namespace, self.hub, credential=default_credential(_WITHOUT_STRING), **options)


def read_url(url: str) -> EventHubAddress:
    """The address in a URL. Raises `ConfigError` and `MissingDependency`."""
    parts = urlsplit(url)
    hub = unquote(parts.path).strip("/")
    namespace = parts.netloc
    if not is_host(namespace) or not hub or "/" in hub or parts.fragment:
        raise ConfigError("hub", masked(url), _FORM, "Name namespace and hub; credentials go into the environment")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for place, option in enumerate(options):
        if option not in _OPTIONS:
            hint = "Correct it" if option != "mirror_offsets" else "Only kafka:// mirrors progress"
            shown = unknown_option(option, list(options)[:place], _WITH_SECRETS)
            raise ConfigError("hub", masked(url), f"its options are {', '.join(_OPTIONS)}, not {shown}", hint)
    transport = options.get("transport", "amqp")
    if transport not in _TRANSPORTS:
        raise ConfigError("transport", transport, f"one of {', '.join(_TRANSPORTS)}", "Correct the hub's URL")
    if transport == "websockets":
        _check_websockets()
    fleet = options.get("fleet", "leasehold")
    if fleet not in _FLEETS:
        raise ConfigError("fleet", fleet, f"one of {', '.join(_FLEETS)}", "Correct the hub's URL")
    string = checked_connection_string(options, os.environ, _STRINGS, namespace=namespace, entity=hub)
    group = options.get("consumer_group") or "$Default"
    return EventHubAddress(
        namespace,
        hub,
        group,
        transport,
        mixed=fleet == "mixed",
        endpoint=options.get("endpoint", ""),
        status_group=options.get("status_group", ""),
        _connection_string=string,
    )


def without_secrets(text: object) -> str:
    """A text of others, with what looks like a secret hidden."""
    return _SECRETS.sub(r"\1***", str(text))


def _check_websockets() -> None:
    try:
        import websocket  # noqa: F401  azure-eventhub imports it only once it connects
    except ModuleNotFoundError:
        rule = "it needs the package websocket-client, which is not installed"
        raise ConfigError("transport", "websockets", rule, "pip install websocket-client") from None
