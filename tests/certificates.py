"""Certificates for tests: an authority of the test's own, and what it signs, as files in PEM."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HERE = "127.0.0.1"
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Signed:
    """The files of a certificate and its key; `both` has the key first."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates. `file` has its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._certificate(self._subject, self._key, (-1, 1)).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), True
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(_PEM))

    def sign(self, name: str, *, host: str = HERE, days: tuple[float, float] = (-1, 1)) -> Signed:
        """A certificate for a host, good from this many days from now on until this many."""
        key = ec.generate_private_key(ec.SECP256R1())
        named = x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._certificate(subject, key, days)
            .add_extension(x509.SubjectAlternativeName([named]), False)
            .sign(self._key, hashes.SHA256())
            .public_bytes(_PEM)
        )
        plain = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        signed = Signed(*(self._folder / f"{name}.{kind}" for kind in ("crt", "key", "pem")))
        signed.certificate.write_bytes(certificate)
        signed.key.write_bytes(plain)
        signed.both.write_bytes(plain + certificate)
        return signed

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[float, float]
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=days[0]))
            .not_valid_after(now + datetime.timedelta(days=days[1]))
        )
