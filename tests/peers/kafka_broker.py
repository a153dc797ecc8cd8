"""A real Kafka: brokers that are their own controllers (KRaft), from Maven's JARs, on ports of this machine.

Owns the processes of a cluster of one broker or of several, and what is done to them: killed, started again with what
they had on disk, paused. Promises that whoever is told that the cluster is whole finds every broker in it and every
replica in sync; and to signal only processes that it has started itself, by their ids.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are documented
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from leasehold.spark.session.java import find_java
from tests.peers.maven import jars
from tests.ports import free_port
from tests.waiting import PATIENCE, until

COORDINATES = ("org.apache.kafka:kafka_2.13:4.1.0", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3")

_SETTINGS = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
auto.create.topics.enable=false
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor={replicas}
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
default.replication.factor={replicas}
min.insync.replicas={in_sync}
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=8388608
log.retention.check.interval.ms=2000
"""


class Broker:
    """One broker: a process, a port that stays its own, and a folder."""

    def __init__(self, node: int, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self.port, self.controller = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def format(self, settings: str, cluster_id: str, users: Sequence[str]) -> subprocess.Popen[bytes]:
        """Begin to prepare its folder."""
        self.folder.mkdir()
        (self.folder / "server.properties").write_text(settings)
        added = [word for user in users for word in ("--add-scram", user)]
        return self._java("kafka.tools.StorageTool", "format", "-t", cluster_id, *added, "-c")

    def start(self) -> None:
        """Start it, with what it has on disk. Does not wait for it."""
        assert not self.running
        self._process = self._java("kafka.Kafka")

    def kill(self) -> None:
        """SIGKILL: what it has on disk stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and nothing is answered."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        os.waitpid(self._process.pid, os.WUNTRACED)  # it stops a little later than it is told

    def resume(self) -> None:
        """Go on. Nothing happens to one that was not paused, or does not run."""
        if self.running:
            self._signal(signal.SIGCONT)

    def knows(self, topic: str) -> int:
        """Of how many partitions of a topic it knows the leaders. A client's first question goes to whom it is told."""
        asked = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            found = asked.list_topics(topic, timeout=5).topics[topic]
        except KafkaException:
            return 0
        return sum(partition.leader >= 0 for partition in found.partitions.values())

    def said(self) -> str:
        """The end of what it has logged."""
        return (self.folder / "broker.log").read_text(errors="replace")[-2000:]

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _java(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = find_java().home
        java = "java" if home is None else str(home / "bin" / "java")
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka', COORDINATES)}/*"]
        command = [java, *options, name, *arguments, str(self.folder / "server.properties")]
        with (self.folder / "broker.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(), start_new_session=True
            )


class Cluster:
    """A cluster of this many brokers. Topics have a replica on each, and all but one of them must be in sync."""

    def __init__(self, folder: Path, size: int = 1) -> None:
        self.brokers = {node: Broker(node, folder / f"broker-{node}") for node in range(1, size + 1)}
        self.servers = ",".join(broker.address for broker in self.brokers.values())
        self._replicas = size
        self._seen: object = None
        voters = ",".join(f"{node}@127.0.0.1:{each.controller}" for node, each in self.brokers.items())
        cluster_id = str(uuid4())
        formatted = []
        for node, broker in self.brokers.items():
            settings = _SETTINGS.format(
                node=node,
                voters=voters,
                port=broker.port,
                controller=broker.controller,
                folder=broker.folder,
                replicas=size,
                in_sync=max(1, size - 1),
            )
            formatted.append(broker.format(settings + self.more_settings(node), cluster_id, self.users()))
        for broker, done in zip(self.brokers.values(), formatted, strict=True):
            if done.wait(PATIENCE):
                raise OSError(f"Kafka's folder could not be prepared: {broker.said()}")
            broker.start()
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        try:
            self.wait_whole()
        except BaseException:
            self.kill()
            raise

    def more_settings(self, node: int) -> str:
        """Settings of a broker that go before those that all have."""
        return ""

    def users(self) -> list[str]:
        """Who may log in, as the folder is prepared with it."""
        return []

    def url(self, topic: str, query: str = "") -> str:
        """Where a topic is, for `open_hub`."""
        return f"kafka://{self.servers}/{topic}{'?' if query else ''}{query}"

    # topics

    def create(
        self,
        topic: str,
        partitions: int,
        config: Mapping[str, str] | None = None,
        replicas: Sequence[int] | None = None,
    ) -> str:
        """Make a topic, when one of that name that is being deleted is gone. Returns its name."""
        new = NewTopic(topic, partitions, self._replicas, config=dict(config or {}))
        if replicas is not None:
            assigned = [list(replicas)] * partitions
            new = NewTopic(topic, partitions, replica_assignment=assigned, config=dict(config or {}))
        self._until_done(lambda: self.admin.create_topics([new])[topic])
        self._wait_known(topic, partitions)
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result(PATIENCE)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions, up to this many."""
        self._until_done(lambda: self.admin.create_partitions([NewPartitions(topic, partitions)])[topic])
        self._wait_known(topic, partitions)

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Remove events, as retention does."""
        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[TopicPartition(topic, partition)].result(PATIENCE)

    def configure(self, topic: str, **config: str) -> None:
        """Change a topic's configuration; `_` stands for `.` in a name."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE)

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker that leads a partition, as far as one can be asked and there is one."""
        try:
            leader = self.admin.list_topics(topic, timeout=5).topics[topic].partitions[partition].leader
        except KafkaException:
            return None
        return leader if leader >= 0 else None

    def in_sync(self, topic: str, partition: int) -> list[int]:
        """The brokers whose replicas are in sync."""
        return list(self.admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions[partition].isrs)

    def elect(self, topic: str, partitions: Sequence[int], *, unclean: bool = False) -> None:
        """Elect the preferred leaders; or, `unclean`, whoever is there where nobody leads."""
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        places = [TopicPartition(topic, partition) for partition in partitions]
        self.admin.elect_leaders(kind, places).result(10)

    # brokers

    def start(self, node: int) -> None:
        """Start a broker that was killed, and wait until the cluster is whole again, as far as its brokers run."""
        self.brokers[node].start()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Wait until every broker that runs is one of the cluster, and every replica of those in sync."""
        try:
            until(lambda: self._is_whole() or self._is_dead(), "Kafka to be whole")
            assert not self._is_dead(), "no broker runs"
        except AssertionError as error:
            said = "\n".join(each.said() for each in self.brokers.values())
            raise OSError(f"Kafka does not start, or is not whole: {self._seen}\n{said}") from error

    @contextlib.contextmanager
    def away(self, *nodes: int) -> Iterator[None]:
        """A block in which brokers are dead, or all of them; they are started again at its end."""
        gone = [self.brokers[node] for node in nodes or self.brokers]
        for broker in gone:
            broker.kill()
        try:
            yield
        finally:
            for broker in gone:
                broker.start()
            self.wait_whole()

    @contextlib.contextmanager
    def paused(self, *nodes: int) -> Iterator[None]:
        """A block in which brokers are silent, or all of them."""
        silent = [self.brokers[node] for node in nodes or self.brokers]
        for broker in silent:
            broker.pause()
        try:
            yield
        finally:
            for broker in silent:
                broker.resume()
            self.wait_whole()

    def kill(self) -> None:
        """End it, and with it what it keeps."""
        for broker in self.brokers.values():
            broker.kill()

    def _is_dead(self) -> bool:
        return not any(each.running for each in self.brokers.values())

    def _is_whole(self) -> bool:
        running = {node for node, broker in self.brokers.items() if broker.running}
        try:
            found = self.admin.list_topics(timeout=5)
        except KafkaException:
            return False
        self._seen = {
            (topic.topic, number): partition.isrs
            for topic in found.topics.values()
            for number, partition in topic.partitions.items()
            if partition.leader not in running or not running & set(partition.replicas) <= set(partition.isrs)
        }
        return set(found.brokers) == running and not self._seen

    def _wait_known(self, topic: str, partitions: int) -> None:
        """Wait until every broker knows this many partitions of a topic, each with a leader."""
        running = [broker for broker in self.brokers.values() if broker.running]
        until(lambda: all(broker.knows(topic) == partitions for broker in running), f"{topic} to be known")

    def _until_done(self, ask: Callable[[], Any]) -> None:
        def done() -> bool:
            try:
                ask().result(PATIENCE)
            except KafkaException as error:
                self._seen = error
                return False
            return True

        until(done, "Kafka to do it", pause=0.1)


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "JAVA_TOOL"))}
