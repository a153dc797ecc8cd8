"""The Schema Registry of an Event Hubs namespace, by Azure's official client.

Owns the URL, `azschemas://NAMESPACE.servicebus.windows.net`, with `?ca=ca.pem` where another authority than the usual
ones has signed what answers there, and what an answer means. Who asks is what azure-identity finds: the registry takes
no key and no connection string. Client and credential are made anew for each request of schemas, which are asked for
once, so that nothing of either is carried into a forked process. The client does not try again by itself: whoever needs
a schema waits for the registry, and says so.

An id is a GUID, and here a number of 128 bits. The service says of one that it does not know `ItemNotFound`. Any other
404 comes from a server that is no registry: it rejects no event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

from leasehold.azure.credentials import default_credential
from leasehold.backends import is_host, masked
from leasehold.errors import ConfigError, MissingDependency, RegistryError, RegistryUnavailable
from leasehold.printable import printable, shortened
from leasehold.registries.contract import AVRO, RegisteredSchema, Schemas
from leasehold.registries.handshakes import CHECK, refused_handshake

_EXTRA = "azschemas"
_WHAT = "Azure's schema registry"
_FORM = "azschemas://NAMESPACE.servicebus.windows.net, with ?ca=FILE where another authority signs its certificate"
_UNKNOWN = "ItemNotFound"
_NOT_FOUND = 404
_REFUSED = (401, 403)
_PASSES = (408, 429)  # it is asked too slowly, or too often
_SERVER = 500  # and above: of the server's own
_SHOWN = 200
_TIMEOUT = 10.0  # of a request, in seconds


class AzureSchemas:
    """A registry. Raises `ConfigError` for a URL that cannot be read, `MissingDependency` without the client."""

    def __init__(self, url: str) -> None:
        self._shown = masked(url)
        self._namespace, ca = _read_url(url)
        self._verify: str | bool = ca or True
        try:
            import azure.schemaregistry  # noqa: F401  what is not installed is said at once
        except ModuleNotFoundError:
            raise MissingDependency(_WHAT, _EXTRA) from None
        default_credential(_WHAT, _EXTRA).close()

    def schemas(self, numbers: Iterable[int]) -> Schemas:
        from azure.core.exceptions import AzureError
        from azure.schemaregistry import SchemaRegistryClient

        how: dict[str, Any] = {"retry_total": 0, "connection_timeout": _TIMEOUT, "read_timeout": _TIMEOUT}
        try:
            with (
                default_credential(_WHAT, _EXTRA) as credential,
                SchemaRegistryClient(self._namespace, credential, connection_verify=self._verify, **how) as client,
            ):
                return {number: _schema(client, number) for number in numbers}
        except AzureError as error:
            raise self._refusal(error) from None  # the cause may tell of the credential
        except OSError as error:
            raise RegistryError(f"the schema registry {self._shown} cannot be asked: {error}. Check ca") from error

    def numbers(self, subject: str) -> set[int]:
        """Raises `ConfigError`: a content type has the id of a schema, and this registry has no subjects."""
        remedy = "Run a pipeline file, which reads by the content types of events"
        raise ConfigError("subjects", subject, f"{_WHAT} has none", remedy)

    def _refusal(self, error: Any) -> RegistryError:
        from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

        status = error.status_code if isinstance(error, HttpResponseError) else None
        if status is None and isinstance(error, ClientAuthenticationError):
            return RegistryUnavailable(  # who gives tokens may be away: nobody can tell that from no identity at all
                f"the schema registry {self._shown}: azure-identity has given no token. Check the managed or workload "
                "identity, its environment variables, or `az login`"
            )
        why = printable(shortened(str(error.message), _SHOWN))
        if wrong := refused_handshake(error):
            return RegistryError(f"the schema registry {self._shown} is not asked ({wrong}). {CHECK}")
        if status is None:
            return RegistryUnavailable(f"the schema registry {self._shown} does not answer: {why}")
        said = f"the schema registry {self._shown} gives no schema ({status}: {why})"
        if status >= _SERVER or status in _PASSES:
            return RegistryUnavailable(said)
        if status in _REFUSED:
            return RegistryError(f"{said}. Give the identity the role Schema Registry Reader in this namespace")
        return RegistryError(f"{said}. Check the namespace: it needs a schema registry, which the basic tier has not")


def _schema(client: Any, number: int) -> RegisteredSchema | None:
    from azure.core.exceptions import ResourceNotFoundError
    from azure.schemaregistry import SchemaFormat

    try:
        found = client.get_schema(f"{number:032x}")
    except ResourceNotFoundError as error:
        if error.error is not None and error.error.code == _UNKNOWN:
            return None
        raise
    format = found.properties.format
    kind = AVRO if format == SchemaFormat.AVRO else printable(shortened(str(getattr(format, "value", format)), _SHOWN))
    return RegisteredSchema(kind, found.definition)


def _read_url(url: str) -> tuple[str, str]:
    """The namespace, and the file of an authority, if one is named. Raises `ConfigError`."""
    parts = urlsplit(url)
    ca = ""
    for option in filter(None, parts.query.split("&")):
        name, _, value = option.partition("=")
        if name != "ca" or not value:
            remedy = "Who asks is what azure-identity finds: give that identity the role Schema Registry Reader"
            raise ConfigError("registry", masked(url), f"its only option is ca; a URL is {_FORM}", remedy)
        ca = unquote(value)
    if not is_host(parts.netloc) or parts.path.strip("/") or parts.fragment:
        raise ConfigError("registry", masked(url), f"a URL is {_FORM}", "Name the namespace alone")
    return parts.netloc, ca
