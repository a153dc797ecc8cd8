"""A Kafka broker that asks who somebody is: SASL (SCRAM), with and without TLS, and access rights."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are documented
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.certificates import Authority
from tests.peers.kafka_broker import Cluster
from tests.ports import free_port
from tests.waiting import PATIENCE

READER, WRITER = "reader", "writer"
PASSWORD = "secret-of-the-test"  # noqa: S105 - of users of this test's own

_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_MORE = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{sasl},SASL_SSL://127.0.0.1:{tls},MUTUAL://127.0.0.1:{mutual}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},SASL_SSL://127.0.0.1:{tls},MUTUAL://127.0.0.1:{mutual}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,MUTUAL:SSL
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={login}
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={login}
ssl.keystore.type=PEM
ssl.keystore.location={shown}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.mutual.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


class SecuredCluster(Cluster):
    """One broker with two users, `READER` and `WRITER`, and four ways in: without anything for the test itself.

    `mutual` wants a certificate of its clients, signed by `certificates`.
    """

    def __init__(self, folder: Path) -> None:
        self.sasl, self.tls, self.mutual = free_port(), free_port(), free_port()
        self.certificates = Authority(folder / "certificates")
        self.authority = self.certificates.file
        super().__init__(folder)

    def more_settings(self, node: int) -> str:
        """Listeners and rights, in place of the plain ones."""
        broker = self.brokers[node]
        return _MORE.format(
            port=broker.port,
            controller=broker.controller,
            sasl=self.sasl,
            tls=self.tls,
            mutual=self.mutual,
            shown=self.certificates.sign("broker").both,
            authority=self.authority,
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
