"""A real Kafka: one broker that is its own controller, from Maven's JARs, on a port of this machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leasehold.spark.java import find_java
from tests.peers.maven import jars
from tests.stores.azurite import free_port

COORDINATES = ("org.apache.kafka:kafka_2.13:4.1.0", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3")
PATIENCE = 120.0
"""Seconds: a broker on a busy machine may need more than a minute to listen."""

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
"""


class Broker:
    """A running broker, of this test's own."""

    def __init__(self, folder: Path) -> None:
        classpath = f"{jars('kafka', COORDINATES)}/*"
        home = find_java().home
        java = "java" if home is None else str(home / "bin" / "java")
        port = free_port()
        settings = folder / "server.properties"
        settings.write_text(_SETTINGS.format(port=port, controller=free_port(), folder=folder))
        self._command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
        self._log = folder / "broker.log"
        self.servers = f"127.0.0.1:{port}"
        with self._log.open("wb") as log:
            formatted = [*self._command, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(settings)]
            subprocess.run(formatted, stdout=log, stderr=log, check=True, timeout=PATIENCE, env=_environment())
            self._process = subprocess.Popen(
                [*self._command, "kafka.Kafka", str(settings)], stdout=log, stderr=log, env=_environment()
            )
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise OSError(f"Kafka does not start: {self._log.read_text()[-2000:]}")

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, when one of that name that is being deleted is gone."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result(PATIENCE)

    def kill(self) -> None:
        """End it, and with it what it keeps."""
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            return bool(self.admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False


def _cluster_id() -> str:
    return str(uuid4())


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "JAVA_TOOL"))}
