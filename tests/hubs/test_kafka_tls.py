"""TLS that cannot come about is no outage: who refuses whom, and what to do.

Nobody speaks Kafka here: the handshake fails before. What a real broker says is in `tests/peers/test_kafka_secured.py`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from leasehold.errors import ConfigError, HubError, HubUnavailable, Verdict
from leasehold.hubs import open_hub
from leasehold.hubs.kafka.clients import Client, failure
from leasehold.hubs.kafka.options import KafkaSettings
from tests.certificates import Authority, Signed


@dataclass(frozen=True)
class Parties:
    """Two authorities. The servers trust the first one."""

    ours: Authority
    other: Authority


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    folder = tmp_path_factory.mktemp("certificates")
    return Parties(Authority(folder / "ours"), Authority(folder / "other"))


class Server:
    """Listens for TLS with a certificate, and wants one of its clients if it is told whom to trust."""

    def __init__(self, shown: Signed, trusts: Path | None, latest: ssl.TLSVersion) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(shown.both)
        self._context.maximum_version = latest
        if trusts is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(trusts)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), self._context.wrap_socket(client, server_side=True) as wrapped:
            while wrapped.recv(1_000):
                pass


@contextlib.contextmanager
def listening(
    shown: Signed, trusts: Path | None = None, latest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> Iterator[Server]:
    server = Server(shown, trusts, latest)
    yield server
    server.close()


REFUSING = [
    (shown, latest)
    for shown in ("none", "another authority's", "expired")
    for latest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
]
"""What the client shows a broker that refuses it, and the latest TLS that the broker speaks."""
REFUSED = ("authority", "name", "expired", "not yet")
"""What is wrong with a broker that the client refuses."""


@pytest.fixture(scope="module")
def said(parties: Parties) -> Iterator[dict[object, Future[str]]]:
    """What opening a topic says, of all cases: together, since each waits until its time is over."""
    with contextlib.ExitStack() as stack:
        asking = stack.enter_context(ThreadPoolExecutor(len(REFUSING) + len(REFUSED)))
        clients = {
            "none": None,
            "another authority's": parties.other.sign("stranger"),
            "expired": parties.ours.sign("old", days=(-2, -1)),
        }
        brokers = {
            "authority": parties.other.sign("broker"),
            "name": parties.ours.sign("elsewhere", host="broker.example"),
            "expired": parties.ours.sign("old-broker", days=(-2, -1)),
            "not yet": parties.ours.sign("new-broker", days=(1, 2)),
        }
        found: dict[object, Future[str]] = {}
        for shown, latest in REFUSING:
            server = stack.enter_context(listening(parties.ours.sign("broker"), parties.ours.file, latest))
            found[shown, latest] = asking.submit(refusal, server, parties.ours.file, clients[shown])
        for wrong in REFUSED:
            server = stack.enter_context(listening(brokers[wrong]))
            found[wrong] = asking.submit(refusal, server, parties.ours.file)
        yield found


def refusal(server: Server, authority: Path, client: Signed | None = None) -> str:
    """What opening a topic there raises, which no waiting mends. The handshake has to be over before the time is."""
    shown = f"&ssl_certificate_location={client.certificate}&ssl_key_location={client.key}" if client else ""
    query = f"security_protocol=SSL&request_timeout=10s&ssl_ca_location={authority}{shown}"
    with pytest.raises(HubError) as refused:
        open_hub(f"kafka://127.0.0.1:{server.port}/t?{query}")
    assert not isinstance(refused.value, HubUnavailable), refused.value
    assert refused.value.verdict is Verdict.MEND
    return str(refused.value)


@pytest.mark.more
@pytest.mark.parametrize(("shown", "latest"), REFUSING)
def test_a_broker_that_refuses_the_client(shown: str, latest: ssl.TLSVersion, said: dict[object, Future[str]]) -> None:
    told = said[shown, latest].result()
    assert "SSL alert number" in told
    assert "certificate of this client" in told
    assert "ssl_certificate_location" in told


@pytest.mark.more
@pytest.mark.parametrize("wrong", REFUSED)
def test_a_broker_that_the_client_refuses(wrong: str, said: dict[object, Future[str]]) -> None:
    told = said[wrong].result()
    for possible in ("name the authority with ssl_ca_location", "another name", "expired"):
        assert possible in told


def test_files_that_cannot_be_read_are_named(parties: Parties, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"This user cannot read ssl.ca.location={tmp_path}/none"):
        open_hub(f"kafka://127.0.0.1:1/t?security_protocol=SSL&ssl_ca_location={tmp_path}/none")
    client = parties.ours.sign("client")
    query = f"ssl_certificate_location={client.certificate}&ssl_key_location={tmp_path}/gone.key"
    with pytest.raises(ConfigError, match=rf"This user cannot read ssl.key.location={tmp_path}/gone.key"):
        open_hub(f"kafka://127.0.0.1:1/t?security_protocol=SSL&{query}")


SETTINGS = KafkaSettings(servers="h:1", topic="t", client={"security.protocol": "SSL"})


@pytest.mark.parametrize("alert", [40, 42, 43, 44, 45, 46, 48, 49, 51, 70, 71, 116])
def test_an_alert_on_what_was_shown_or_asked_for_is_no_outage(alert: int) -> None:
    reason = KafkaError(KafkaError._TRANSPORT, f"ssl://h:1: error:0A: some alert: SSL alert number {alert} (after 1ms)")
    error = failure(SETTINGS, KafkaError(KafkaError._TIMED_OUT), "asking", reason)
    assert type(error) is HubError


@pytest.mark.parametrize("alert", [0, 20, 80, 90])
def test_an_alert_on_what_went_wrong_on_the_way_is_one(alert: int) -> None:
    reason = KafkaError(KafkaError._SSL, f"ssl://h:1: error:0A: some alert: SSL alert number {alert} (after 1ms)")
    assert isinstance(failure(SETTINGS, None, "asking", reason), HubUnavailable)


def test_a_refused_connection_to_another_address_of_the_broker_hides_no_alert(parties: Parties) -> None:
    """As with `localhost`, which is two addresses: whichever was tried last."""
    client: Client[Any] = Client(_Silent, SETTINGS)
    report = client.handle.config["error_cb"]
    report(KafkaError(KafkaError._TRANSPORT, "SSL alert number 42"))
    report(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    assert type(client.failure(None, "asking")) is HubError
    client.forget_errors()
    report(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    assert isinstance(client.failure(None, "asking"), HubUnavailable)


class _Silent:
    """A client that reports what it is told to, when it is told to."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def poll(self, timeout: float) -> None:
        """Nothing comes."""
