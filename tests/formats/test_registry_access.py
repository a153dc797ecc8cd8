"""Who gets into a registry with Confluent's API, and how: certificates, tokens, and what the environment says."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization

from leasehold.body_format import BodyFormat
from leasehold.errors import ConfigError, RegistryError, RegistryUnavailable, Verdict
from leasehold.formats import BodyReader
from leasehold.registries import open_registry
from leasehold.registries.handshakes import refused_handshake
from leasehold_testkit.emulators.registry import RegistryServer
from tests.azure_registry import server_context
from tests.certificates import Authority, Signed
from tests.formats.registered import COLUMNS, headed, outcome, schema

TOKEN = "a+b/c=="  # noqa: S105


@dataclass(frozen=True)
class Secured:
    """A registry behind TLS that wants a certificate, the number of a schema in it, and one that it lets in."""

    server: RegistryServer
    number: int
    ours: Authority
    mine: Signed

    def url(self, **options: object) -> str:
        return f"{self.server.url}?{'&'.join(f'{name}={value}' for name, value in options.items())}"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    ours = Authority(tmp_path / "ours")
    with closing(RegistryServer(tls=server_context(ours, trusts=ours.file))) as server:
        yield Secured(server, server.register("flights", schema(id="string")), ours, ours.sign("me"))


def test_a_certificate_of_ones_own_opens_a_registry(secured: Secured) -> None:
    whole = secured.url(ca=secured.ours.file, certificate=secured.mine.certificate, key=secured.mine.key)
    one = BodyReader(COLUMNS, BodyFormat(format="avro", registry=whole))
    assert outcome(one.read(pa.array([headed(secured.number, b"\x02a")]))) == [("a", None, None)]
    both = secured.url(ca=secured.ours.file, certificate=secured.mine.both)
    assert open_registry(both).schemas([secured.number])[secured.number] is not None


def test_a_key_may_have_a_password_which_the_environment_has(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = serialization.load_pem_private_key(secured.mine.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"se&cret")
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    (tmp_path / "locked.key").write_bytes(key.private_bytes(*pem, locked))
    (tmp_path / "password").write_text("se&cret\n")
    monkeypatch.setenv("LEASEHOLD_REGISTRY_CA", str(secured.ours.file))
    monkeypatch.setenv("LEASEHOLD_REGISTRY_CERTIFICATE", str(secured.mine.certificate))
    monkeypatch.setenv("LEASEHOLD_REGISTRY_KEY", str(tmp_path / "locked.key"))
    monkeypatch.setenv("LEASEHOLD_REGISTRY_KEY_PASSWORD_FILE", str(tmp_path / "password"))
    assert open_registry(secured.server.url).schemas([99]) == {99: None}
    with pytest.raises(ConfigError, match="registry") as wrong:
        open_registry(f"{secured.server.url}?key_password=guessed")
    assert "guessed" not in str(wrong.value)


def test_who_is_not_trusted_needs_a_person(secured: Secured, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "other")
    theirs = other.sign("them")
    for url, said in (
        (secured.url(ca=other.file, certificate=secured.mine.both), "self-signed certificate"),
        (secured.url(ca=secured.ours.file), "CERTIFICATE_REQUIRED"),
        (secured.url(ca=secured.ours.file, certificate=theirs.both), "UNKNOWN_CA"),
    ):
        with pytest.raises(RegistryError, match=said) as refused:
            open_registry(url).schemas([secured.number])
        assert refused.value.verdict is Verdict.MEND
        assert "Check its certificate" in str(refused.value)


def test_a_server_that_speaks_no_tls_is_waited_for(secured: Secured) -> None:
    """It may be a proxy that starts."""
    with closing(RegistryServer()) as plain, pytest.raises(RegistryUnavailable, match="does not answer"):
        open_registry(plain.url.replace("http:", "https:")).schemas([1])
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        open_registry(secured.server.url.replace("https:", "http:")).schemas([1])


def test_a_token_opens_a_registry_and_is_read_anew_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(RegistryServer(token=TOKEN)) as server:
        assert open_registry(f"{server.url}?token={TOKEN}&logical_cluster=lsrc-1").schemas([99]) == {99: None}
        (tmp_path / "token").write_text("old")
        monkeypatch.setenv("LEASEHOLD_REGISTRY_TOKEN_FILE", str(tmp_path / "token"))
        registry = open_registry(server.url)
        with pytest.raises(RegistryError, match=r"401: Unauthorized.*Check the URL, and the user and password, or the"):
            registry.schemas([99])
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        assert registry.schemas([99]) == {99: None}


def test_the_password_of_a_user_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(RegistryServer(user="me", password="a:b")) as server:  # noqa: S106
        monkeypatch.setenv("LEASEHOLD_REGISTRY_PASSWORD", "a:b")
        assert open_registry(server.url.replace("//", "//me@")).schemas([99]) == {99: None}
        monkeypatch.setenv("LEASEHOLD_REGISTRY_USER", "me")
        assert open_registry(server.url).schemas([99]) == {99: None}
        with pytest.raises(RegistryError, match="401"):  # what the URL says goes first
            open_registry(server.url.replace("//", "//me:other@")).schemas([99])


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://registry.example:8081?token=secret", "the token would go over plain http"),
        ("https://me:secret@registry.example?token=secret", "a user and a token are both given"),
        ("https://registry.example?key=nowhere.key", "ssl.certificate.location required"),
        ("https://registry.example?ca=nowhere.pem", "No such file"),
        ("https://registry.example?token=secret&part=of", "not shown: it may be a part of it"),
    ],
)
def test_what_cannot_work_or_would_give_a_secret_away_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        open_registry(url)
    assert "secret" not in str(refused.value)
    assert "part" not in str(refused.value).replace("a part of it", "").partition("there are")[0]


def test_an_ended_handshake_says_nothing_of_certificates() -> None:
    assert refused_handshake(ssl.SSLEOFError(8, "EOF occurred in violation of protocol")) == ""
    assert refused_handshake(OSError()) == ""
