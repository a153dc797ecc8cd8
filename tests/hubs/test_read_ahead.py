"""Reading a socket ahead: the same bytes, the same waiting, over TCP and over TLS."""

from __future__ import annotations

import datetime
import itertools
import random
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from leasehold.hubs.event_hubs.read_ahead import ReadAhead


@pytest.fixture(params=["tcp", "tls"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Who writes, and who reads."""
    writer, reader = socket.socketpair()
    if request.param == "tls":
        writer, reader = secured(writer, reader, tmp_path)
    with writer, reader:
        yield writer, reader


def secured(writer: socket.socket, reader: socket.socket, folder: Path) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """The same connection under TLS, by a certificate made for it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "peer")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("peer")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    both = folder / "peer.pem"
    both.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(both))
    serving.load_cert_chain(both)
    made: list[ssl.SSLSocket] = []
    shaking = threading.Thread(target=lambda: made.append(serving.wrap_socket(writer, server_side=True)))
    shaking.start()
    secure = asking.wrap_socket(reader, server_hostname="peer")
    shaking.join()
    return made[0], secure


def exactly(ahead: ReadAhead, count: int) -> bytes:
    """This many bytes, as the client's transport reads them."""
    view, length = memoryview(bytearray(count)), 0
    while length < count:
        got = ahead.recv_into(view[length:])
        assert got, "the connection has ended"
        length += got
    return bytes(view)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_bytes_in_their_order_however_they_come_and_are_asked_for(
    ends: tuple[socket.socket, socket.socket], seed: int
) -> None:
    writer, reader = ends
    chance = random.Random(seed)
    written = chance.randbytes(400_000)
    cuts = sorted(chance.choices(range(len(written)), k=chance.choice((3, 300))))
    pieces = [written[a:b] for a, b in itertools.pairwise([0, *cuts, len(written)])]

    def write() -> None:
        for piece in pieces:
            writer.sendall(piece)

    writing = threading.Thread(target=write)
    writing.start()
    ahead, found = ReadAhead(reader), b""
    while len(found) < len(written):
        found += exactly(ahead, min(chance.choice((8, 350, 70_000)), len(written) - len(found)))
    writing.join()
    assert found == written


def test_it_waits_only_when_it_has_nothing_and_as_long_as_the_socket_says(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    writer, reader = ends
    ahead = ReadAhead(reader)
    ahead.settimeout(0.05)
    assert reader.gettimeout() == ahead.gettimeout() == 0.05
    writer.sendall(b"12345678abc")
    assert exactly(ahead, 8) == b"12345678"
    assert exactly(ahead, 3) == b"abc"
    for _ in range(2):
        with pytest.raises(TimeoutError):
            ahead.recv_into(memoryview(bytearray(8)))
    writer.sendall(b"next")
    assert exactly(ahead, 4) == b"next", "nothing came twice, and nothing was lost"
    ahead.settimeout(0)
    with pytest.raises((BlockingIOError, ssl.SSLWantReadError)):
        ahead.recv_into(memoryview(bytearray(8)))


def test_the_end_comes_after_all_that_was_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    writer, reader = ends
    ahead = ReadAhead(reader)
    writer.sendall(b"12345678")
    writer.shutdown(socket.SHUT_RDWR)
    assert exactly(ahead, 5) == b"12345"
    assert exactly(ahead, 3) == b"678"
    assert [ahead.recv_into(memoryview(bytearray(8))) for _ in range(2)] == [0, 0]


def test_other_ways_to_read_would_pass_by_what_is_held_and_are_refused(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ahead = ReadAhead(ends[1])
    for name in ("recv", "read", "makefile", "pending", "recvfrom_into"):
        with pytest.raises(AttributeError, match=f"{name}: .*recv_into"):
            getattr(ahead, name)


def test_all_else_is_the_sockets(ends: tuple[socket.socket, socket.socket]) -> None:
    writer, reader = ends
    ahead = ReadAhead(reader)
    ahead.sendall(b"hello")
    assert writer.recv(5) == b"hello"
    assert ahead.fileno() == reader.fileno()
    ahead.close()
    assert reader.fileno() == -1
