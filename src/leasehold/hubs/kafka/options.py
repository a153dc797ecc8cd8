"""What a `kafka://` URL and the environment say, read once and checked together.

Owns the names of the options, their defaults and which of them are secrets. An option stands in the URL's query
or, so that secrets need not, in the environment as `LEASEHOLD_KAFKA_` and its name in capitals; the URL goes
first. Any other setting of librdkafka is passed on under its own name, and both spellings of one are taken:
`sasl.password` and `sasl_password`; what it does not know it refuses when the first client is made. Promises that no
message and no `repr` shows a secret. Refuses settings that the hub's own promises stand on, a user or password before
the host, where Kafka has no use for them, and several topics: a hub is one topic of one cluster, and its identity is
that topic's id, under which places are kept.

A query is not a form: `+` stands for itself, so that a pasted key stays what it is; `%`, `&` and `#` are to be
percent-encoded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from leasehold.backends import is_host, masked, unknown_option
from leasehold.config import parse_duration
from leasehold.environment import FILE, secret_from
from leasehold.errors import ConfigError
from leasehold.settings.names import nearest

ENVIRONMENT = "LEASEHOLD_KAFKA_"
SECRETS = ("sasl_password", "sasl_oauthbearer_client_secret", "ssl_key_password", "ssl_key_pem")
"""The secrets among the options with a line in the docs; of others, `is_secret` judges by the name."""
_NO_SECRETS = ("_location", "_url", "_type", "_ms", "_file", "_id", "_algorithm", "_count")
_SECRET = re.compile(r"pas+w|passphrase|secret|token|pem|assertion|credential|jwt|key|oauthbearer_config")
_HERE = re.compile(r"(?:127\.[\d.]+|localhost|\[::1\])(?::\d*)?", re.IGNORECASE)
FORM = "kafka://host:port,host:port/topic?option=value&option=value"

_CLIENT_OPTIONS = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.certificate.pem",
    "ssl.ca.pem",
    "ssl.endpoint.identification.algorithm",
    "client.id",
    "client.rack",
    "broker.address.family",
    "compression.type",
    "message.max.bytes",
)
_CLIENT_NAMES = {name.replace(".", "_"): name for name in _CLIENT_OPTIONS}
_OURS = {
    **dict.fromkeys(("enable_auto_commit", "enable_auto_offset_store", "auto_commit_interval_ms"), "checkpoints"),
    **dict.fromkeys(("group_instance_id", "group_protocol", "group_remote_assignor"), "ownership by lease"),
    "partition_assignment_strategy": "ownership by lease",
    **dict.fromkeys(("auto_offset_reset", "enable_partition_eof", "check_crcs"), "reading of exact ranges"),
    "isolation_level": "reading of committed messages only",
    **dict.fromkeys(("acks", "request_required_acks", "enable_idempotence"), "promise of what has been sent"),
    **dict.fromkeys(("transactional_id", "partitioner", "max_in_flight"), "promise of what has been sent"),
    "max_in_flight_requests_per_connection": "promise of what has been sent",
    **dict.fromkeys(("message_timeout_ms", "delivery_timeout_ms"), "transfer_timeout"),
    **dict.fromkeys(("bootstrap_servers", "metadata_broker_list"), "brokers, which stand before the topic"),
    "allow_auto_create_topics": "refusal to make a topic by asking for it",
}
"""Settings of librdkafka that may not be given, and what of ours decides on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Where the topic is, how to reach it, and how long to wait. Durations in seconds.

    query             the options of the URL that are no secrets, as text
    client            what librdkafka is told, by its own names
    topic_identity    `id`: a topic made anew is another hub; `name`: for clusters that tell no topic ids
    cluster_id        in place of what the cluster says of itself
    group_id          what readers call themselves to the broker; they never join that group
    timestamp_type    whether events say in `systemProperties` what their time is: their producer's or the broker's
    mirror_offsets    whether `mirror` writes progress into the broker's consumer group offsets
    request_timeout   the longest that one question to the cluster may take
    transfer_timeout  the longest that reading or sending may go on without progress
    """

    servers: str
    topic: str
    query: str = ""
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    topic_identity: str = "id"
    cluster_id: str | None = None
    group_id: str = "leasehold"
    mirror_offsets: bool = False
    timestamp_type: bool = False
    request_timeout: float = 3.0
    transfer_timeout: float = 30.0

    @property
    def url(self) -> str:
        """The URL without secrets."""
        return f"kafka://{self.servers}/{self.topic}{'?' if self.query else ''}{self.query}"

    @property
    def client_config(self) -> dict[str, Any]:
        """The configuration that every client of the cluster has, secrets included."""
        return {"bootstrap.servers": self.servers, **self.client}

    @property
    def unverified(self) -> list[str]:
        """The settings with which anybody may answer for a broker, where TLS is asked for."""
        if "ssl" not in self.client.get("security.protocol", "").lower():
            return []
        off = {"enable.ssl.certificate.verification": "false", "ssl.endpoint.identification.algorithm": "none"}
        return [f"{name}={value}" for name, value in off.items() if self.client.get(name, "").lower() == value]

    @property
    def unencrypted(self) -> str:
        """What is wrong with a login that goes to another host without TLS; nothing where none does."""
        if all(map(_HERE.fullmatch, self.servers.split(","))):
            return ""
        protocol = self.client.get("security.protocol", "plaintext").lower()
        if protocol == "sasl_plaintext":
            return (
                "security_protocol=SASL_PLAINTEXT: the login and all events travel unencrypted, and whoever is on the "
                "way reads them (with PLAIN the password itself, with SCRAM what it can be guessed from). Use SASL_SSL"
            )
        if protocol == "plaintext" and any(is_secret(name) for name in self.client):
            return (
                "security_protocol is plaintext: nobody logs in, the credentials that are given are not used, and all "
                "events travel unencrypted. Use SASL_SSL, or leave the credentials out"
            )
        return ""

    def without_secrets(self, text: str) -> str:
        """`text` with every secret in it hidden."""
        for name, value in self.client.items():
            text = text.replace(value, "***") if value and is_secret(name) else text
        return text


def parse_kafka_url(url: str, environment: Mapping[str, str]) -> KafkaSettings:
    """Read a `kafka://` URL, and the options that it leaves to the environment. Raises `ConfigError`."""
    parts = urlsplit(url)
    topic = unquote(parts.path).removeprefix("/")
    if "@" in parts.netloc:
        raise ConfigError("hub", masked(url), "a Kafka URL has no user before the host", "Use sasl_username")
    if not all(map(is_host, parts.netloc.split(","))) or parts.fragment:
        remedy = "Name the brokers (user and password are options: sasl_username, sasl_password), and write # as %23"
        raise ConfigError("hub", masked(url), f"a Kafka URL is {FORM}", remedy)
    if re.match(r"\^", topic) or re.search(r"[,*]", topic):
        raise ConfigError(
            "hub",
            masked(url),
            "a hub is one topic, without patterns: checkpoints and watermarks are kept by the topic's own id, and the "
            "partitions of several would have one name",
            "Name one topic, and start a pipeline for each; they may fill tables of one database",
        )
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) or topic in (".", ".."):
        raise ConfigError(
            "hub", masked(url), f"a Kafka URL is {FORM}, the topic of letters, digits, . _ or -", "Name one topic"
        )
    stated = dict(_stated(parts.query, masked(url)))
    plain = "&".join(f"{name}={quote(value, safe=':/$,')}" for name, value in stated.items() if not is_secret(name))
    for name, value in _from(environment):
        stated.setdefault(name, value)
    client = {name.replace("_", "."): value for name, value in stated.items() if name not in _OWN}
    own = {name: _OWN[name](value, name) for name, value in stated.items() if name in _OWN}
    return KafkaSettings(servers=parts.netloc, topic=topic, query=plain, client=client, **own)


def _stated(query: str, url: str) -> Iterator[tuple[str, str]]:
    """The options of a query, each with its name as it is listed here."""
    seen: set[str] = set()
    for part in filter(None, query.split("&")):
        given, equals, value = part.partition("=")
        if not equals:
            # The part is not shown: it may be the rest of a secret that holds an &.
            raise ConfigError("hub", url, "a part of the query has no =", "Write an & inside a value as %26")
        name = unquote(given).replace(".", "_").lower()
        if name not in _CLIENT_NAMES and name not in _OWN:
            _check_other(name, given, seen, url)
        if name in seen:
            raise ConfigError("hub", url, f"{name} is given twice", "Keep one of them")
        seen.add(name)
        yield name, unquote(value)


def is_secret(name: str) -> bool:
    """Whether an option is one by its name, in either spelling."""
    name = name.replace(".", "_")
    if name in _CLIENT_NAMES or name in _OWN:
        return name in SECRETS
    return bool(_SECRET.search(name)) and not name.endswith(_NO_SECRETS)


def _from(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The options that the environment states, each once."""
    for variable in dict.fromkeys(key.removesuffix(FILE) for key in environment if key.startswith(ENVIRONMENT)):
        name = variable.removeprefix(ENVIRONMENT).lower()
        value = secret_from(environment, variable)
        if value is not None:
            if name in _OURS:
                raise _is_ours(name, variable)
            yield name, value


def _check_other(name: str, option: str, before: set[str], url: str) -> None:
    """Refuse what cannot be a setting of librdkafka, or may not be given. Raises `ConfigError`."""
    if name in _OURS:
        raise _is_ours(name, option)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or any(map(is_secret, before)):
        shown = unknown_option(option, before, [one for one in before if is_secret(one)])
        raise unknown(shown, url)


def _is_ours(name: str, option: str) -> ConfigError:
    return ConfigError(option, None, f"may not be given: Leasehold's own {_OURS[name]} stands on it", "Leave it out")


def unknown(shown: str, url: str) -> ConfigError:
    """The error for an option that neither we nor librdkafka know."""
    known = [*_OWN, *_CLIENT_NAMES]
    leave = "Leave it out; in a URL, name other settings before the secrets"
    rule = f"{shown} is not an option; there are {', '.join(known)}, and what librdkafka knows"
    return ConfigError("hub", masked(url), rule, nearest(shown.replace(".", "_"), known) or leave)


def refused(settings: KafkaSettings, text: str) -> ConfigError:
    """The error for what librdkafka says of a configuration."""
    if found := re.search(r'No such configuration property: "([^"]+)"', text):
        return unknown(found[1], settings.url)
    unread = [
        f"{name}={value}"
        for name, value in settings.client.items()
        if name.endswith((".location", ".keytab")) and value != "probe" and not os.access(value, os.R_OK)
    ]
    remedy = f"This user cannot read {', '.join(unread)}" if unread else "Correct the option"
    return ConfigError("hub", masked(settings.url), settings.without_secrets(text), remedy)


def _flag(value: str, name: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigError(name, value, "true or false", "Correct it")
    return value.lower() == "true"


def _duration(value: str, name: str) -> float:
    seconds = parse_duration(value, name)
    if not 0.1 <= seconds <= 3600:
        raise ConfigError(name, value, "100ms to 1h", 'For example "10s"')
    return seconds


def _identity(value: str, name: str) -> str:
    if value not in ("id", "name"):
        raise ConfigError(name, value, "id or name", "id is the default; name is for clusters that tell no topic ids")
    return value


def _name(value: str, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", value):
        raise ConfigError(name, value, "1 to 100 letters, digits or any of . _ -", "Choose another name")
    return value


_OWN: Mapping[str, Callable[[str, str], Any]] = {
    "mirror_offsets": _flag,
    "timestamp_type": _flag,
    "request_timeout": _duration,
    "transfer_timeout": _duration,
    "topic_identity": _identity,
    "cluster_id": _name,
    "group_id": _name,
}
