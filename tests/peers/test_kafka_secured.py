"""A real Kafka with logins, TLS and access rights: what works with them, and what each mistake is told as."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined] # it is documented

from leasehold.errors import ConfigError, HubError, HubUnavailable, LeaseholdError, Verdict
from leasehold.hubs import open_hub
from leasehold_testkit.contracts.hubs.fixtures import bodies_of, numbered
from tests.certificates import Authority
from tests.peers.kafka_secured import PASSWORD, READER, WRITER, SecuredCluster

pytestmark = pytest.mark.peers

TOPIC = "secured"
SASL = "security_protocol=SASL_PLAINTEXT&sasl_mechanism=SCRAM-SHA-256&sasl_username="
TLS = "security_protocol=SASL_SSL&sasl_mechanism=SCRAM-SHA-256&sasl_username="


@pytest.fixture(scope="module", autouse=True)
def _topic(secured: SecuredCluster) -> None:
    secured.create(TOPIC, 2)
    secured.create("hidden", 1)
    secured.allow(READER, TOPIC, AclOperation.READ, AclOperation.DESCRIBE)
    secured.allow(WRITER, TOPIC, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_KAFKA_SASL_PASSWORD", PASSWORD)


def url(port: int, query: str, topic: str = TOPIC) -> str:
    return f"kafka://127.0.0.1:{port}/{topic}?{query}"


def test_events_go_and_come_over_a_login_and_over_tls(secured: SecuredCluster) -> None:
    """With no other rights than those of the page: describe and read, and write to send."""
    plain = open_hub(url(secured.sasl, SASL + WRITER))
    over_tls = open_hub(url(secured.tls, f"{TLS}{WRITER}&ssl_ca_location={secured.authority}"))
    assert plain.send(numbered(3), partition="0") == 3
    assert over_tls.send(numbered(3, first=3), partition="0") == 3
    reading = open_hub(url(secured.sasl, SASL + READER))
    for hub in (plain, over_tls, reading):
        assert bodies_of(hub, "0") == [b"%d" % number for number in range(6)]
    assert plain.identity == over_tls.identity == reading.identity
    for _ in range(2):
        with pytest.raises(HubError, match=r"sending was refused.*to send\) write the topic"):
            reading.send(numbered(1), partition="0")
    assert bodies_of(reading, "0") == [b"%d" % number for number in range(6)]
    for hub in (plain, over_tls, reading):
        hub.close()


@pytest.mark.parametrize(
    ("way", "query", "kind", "said", "passes"),
    [
        ("sasl", "", HubUnavailable, "check security_protocol, which is plaintext", True),
        ("tls", "", HubUnavailable, "check security_protocol, which is plaintext", True),
        ("tls", SASL + WRITER, HubUnavailable, "check security_protocol, which is SASL_PLAINTEXT", True),
        ("sasl", TLS + WRITER, HubUnavailable, "check security_protocol, which is SASL_SSL", True),
        ("tls", TLS + WRITER, HubError, "name the authority with ssl_ca_location", False),
        ("sasl", SASL + "nobody", HubError, "Check security_protocol, sasl_mechanism, sasl_username", False),
        ("sasl", SASL.replace("SCRAM-SHA-256", "PLAIN") + WRITER, HubError, "supported mechanisms: SCRAM", False),
    ],
    ids=[
        "no login",
        "no TLS, no login",
        "no TLS",
        "TLS where there is none",
        "no authority",
        "no such user",
        "mechanism",
    ],
)
def test_what_a_mistake_is_told_as(
    secured: SecuredCluster, way: str, query: str, kind: type[LeaseholdError], said: str, passes: bool
) -> None:
    with pytest.raises(kind) as told:
        open_hub(url(getattr(secured, way), query))
    assert said in str(told.value)
    assert PASSWORD not in str(told.value)
    assert (told.value.verdict is Verdict.PASSES) is passes


@pytest.mark.parametrize("shown", ["none", "another authority's", "expired", "ours"])
def test_a_broker_that_wants_a_certificate_of_its_clients(secured: SecuredCluster, shown: str, tmp_path: Path) -> None:
    query = f"security_protocol=SSL&ssl_ca_location={secured.authority}"
    if shown != "none":
        authority = Authority(tmp_path / "other") if shown == "another authority's" else secured.certificates
        client = authority.sign("client", days=(-2, -1) if shown == "expired" else (-1, 1))
        query += f"&ssl_certificate_location={client.certificate}&ssl_key_location={client.key}"
    if shown == "ours":
        secured.allow("CN=client", TOPIC, AclOperation.READ, AclOperation.DESCRIBE)
        hub = open_hub(url(secured.mutual, query))
        assert hub.partition_ids() == ("0", "1")
        hub.close()
        return
    with pytest.raises(HubError, match="certificate of this client") as told:
        open_hub(url(secured.mutual, query))
    assert told.value.verdict is not Verdict.PASSES


def test_a_topic_that_a_user_may_not_see(secured: SecuredCluster) -> None:
    with pytest.raises((HubError, ConfigError), match=r"may describe|may see"):
        open_hub(url(secured.sasl, SASL + READER, "hidden"))
