"""A Kafka broker that asks who somebody is: SASL (SCRAM), with and without TLS, and access rights."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are documented
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.peers.kafka_broker import Cluster
from tests.ports import free_port
from tests.waiting import PATIENCE

READER, WRITER = "reader", "writer"
PASSWORD = "secret-of-the-test"  # noqa: S105 - of users of this test's own

_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_MORE = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{sasl},SASL_SSL://127.0.0.1:{tls}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},SASL_SSL://127.0.0.1:{tls}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={login}
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={login}
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


class SecuredCluster(Cluster):
    """One broker with two users, `READER` and `WRITER`, and three ways in: without anything for the test itself."""

    def __init__(self, folder: Path) -> None:
        self.sasl, self.tls = free_port(), free_port()
        self.authority = folder / "authority.pem"
        self._made = folder
        super().__init__(folder)

    def more_settings(self, node: int) -> str:
        """Listeners and rights, in place of the plain ones."""
        broker = self.brokers[node]
        _certificates(self.authority, self._made / "broker.pem")
        return _MORE.format(
            port=broker.port,
            controller=broker.controller,
            sasl=self.sasl,
            tls=self.tls,
            folder=self._made,
            login=_LOGIN,
        )

    def users(self) -> list[str]:
        """What the folder is prepared with."""
        return [f"SCRAM-SHA-256=[name={name},password={PASSWORD}]" for name in (READER, WRITER)]

    def allow(self, user: str, topic: str, *operations: AclOperation) -> None:
        """Let a user do so much with a topic."""
        rights = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for done in self.admin.create_acls(rights).values():
            done.result(PATIENCE)


def _certificates(authority: Path, broker: Path) -> None:
    """A certificate for 127.0.0.1 with its key, and the one that has signed it: itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(serialization.Encoding.PEM)
    authority.write_bytes(text)
    broker.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + text
    )
