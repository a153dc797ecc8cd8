"""What is said where TLS does not verify who answers."""

from __future__ import annotations

import logging

import pytest

from leasehold import backends
from leasehold.database.postgres.connections import Connections
from leasehold.hubs import open_hub
from leasehold.hubs.kafka.options import parse_kafka_url
from leasehold.stores.redis.server import RedisServer


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_said", set())
    for name in ("PGSSLMODE", "PGHOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *((f"postgresql://u:hidden@db.example/d?sslmode={mode}", mode) for mode in ("disable", "prefer", "require")),
        *((f"postgresql://u:hidden@db.example/d?sslmode={mode}", "") for mode in ("verify-ca", "verify-full")),
        ("postgresql://db.example/d", ""),
        ("postgresql://127.0.0.1/d?sslmode=disable", ""),
        ("postgresql:///d?host=/run/pg&sslmode=disable", ""),
        ("rediss://:hidden@r.example/0?ssl_cert_reqs=none", "ssl_cert_reqs=none"),
        ("rediss://:hidden@r.example/0?ssl_check_hostname=false", "ssl_check_hostname=False"),
        ("rediss://:hidden@r.example/0", ""),
        ("redis://:hidden@r.example/0", ""),
    ],
)
def test_a_store_that_is_not_verified_is_said_once(url: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            if url.startswith("postgresql"):
                Connections(url, 1.0, lambda _: None)
            else:
                RedisServer(url, 1.0, "stores")
    assert [said in text and "who answers is not verified" in text for text in caplog.messages] == [True] * bool(said)
    assert "hidden" not in caplog.text


def test_libpqs_environment_counts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("PGSSLMODE", "allow")
    Connections("postgresql://db.example/d", 1.0, lambda _: None)
    assert "sslmode=allow" in caplog.text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "security_protocol=SASL_SSL&enable.ssl.certificate.verification=false",
            ["enable.ssl.certificate.verification"],
        ),
        ("security_protocol=ssl&ssl_endpoint_identification_algorithm=none", ["ssl.endpoint.identification.algorithm"]),
        ("security_protocol=ssl", []),
        ("enable.ssl.certificate.verification=false", []),
    ],
)
def test_settings_of_kafka_that_verify_nobody(query: str, said: list[str]) -> None:
    found = parse_kafka_url(f"kafka://h/t?{query}", {}).unverified
    assert [one.partition("=")[0] for one in found] == said


SASL = "security_protocol=SASL_PLAINTEXT&sasl_mechanism=PLAIN&sasl_username=u&sasl_password=hidden"


@pytest.mark.parametrize(
    ("servers", "query", "said"),
    [
        ("broker.example:9092", SASL, "travel unencrypted"),
        ("127.0.0.1:9092,broker.example", SASL.lower(), "travel unencrypted"),
        ("broker.example:9092", "sasl_mechanism=PLAIN&sasl_username=u&sasl_password=hidden", "are not used"),
        ("broker.example:9092", SASL.replace("SASL_PLAINTEXT", "SASL_SSL"), ""),
        ("127.0.0.1:9092,localhost,[::1]:9092", SASL, ""),
        ("broker.example:9092", "", ""),
        ("broker.example:9092", "client_id=me", ""),
    ],
)
def test_a_login_to_kafka_that_travels_unencrypted_is_said_once(
    servers: str, query: str, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to answer: it is said before anybody is asked."""
    monkeypatch.setattr("leasehold.hubs.kafka.hub.KafkaHub", lambda settings: None)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            open_hub(f"kafka://{servers}/t?{query}".removesuffix("?"))
    assert [said in text for text in caplog.messages] == [True] * bool(said)
    assert "hidden" not in caplog.text
