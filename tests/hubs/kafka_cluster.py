"""A Kafka cluster of one broker, for tests: librdkafka's mock cluster in a process of its own.

`python kafka_cluster.py` says the broker's address, then does what it is told line by line, says `done` to each,
and ends when its input does. It speaks Kafka's protocol over a socket, for any client. What it cannot do:
transactions, compaction, look-up by time, growing a topic. It keeps about 5 MB or
100,000 messages of a partition.

`Cluster` is the other end of it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import confluent_kafka

_END, _TOPIC, _PARTITION, _VALUE, _MSGFLAGS, _HEADER = 0, 1, 3, 4, 7, 9
"""What the next arguments of `rd_kafka_producev` are."""


def serve() -> None:
    """Run a cluster until the input ends."""
    (library,) = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka-*.so*")
    kafka = ctypes.CDLL(str(library))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_handle_mock_cluster"):
        getattr(kafka, name).restype = ctypes.c_void_p
    kafka.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    said = ctypes.create_string_buffer(500)
    config = ctypes.c_void_p(kafka.rd_kafka_conf_new())
    for option, value in ((b"test.mock.num.brokers", b"1"), (b"log_level", b"0")):
        assert kafka.rd_kafka_conf_set(config, option, value, said, 500) == 0, said.value
    client = kafka.rd_kafka_new(0, config, said, 500)
    assert client, said.value
    cluster = ctypes.c_void_p(kafka.rd_kafka_handle_mock_cluster(ctypes.c_void_p(client)))
    print(kafka.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "topic":
            failed = kafka.rd_kafka_mock_topic_create(cluster, rest[0].encode(), int(rest[1]), 1)
        elif word == "trim":
            failed = kafka.rd_kafka_mock_partition_delete_records(
                cluster, rest[0].encode(), int(rest[1]), ctypes.c_int64(int(rest[2]))
            )
        elif word == "controller":
            failed = kafka.rd_kafka_mock_set_controller_id(cluster, ctypes.c_int32(int(rest[0])))
        elif word == "header":  # the official client's Python side writes no name that is not UTF-8
            header, value = bytes.fromhex(rest[1][1:]), bytes.fromhex(rest[2])
            kafka.rd_kafka_producev.restype = ctypes.c_int
            failed = kafka.rd_kafka_producev(
                *(ctypes.c_void_p(client), _TOPIC, rest[0].encode(), _PARTITION, ctypes.c_int32(0)),
                *(_VALUE, b"v", ctypes.c_size_t(1), _MSGFLAGS, 2),
                *(_HEADER, header, value, ctypes.c_ssize_t(len(value)), _END),
            ) or kafka.rd_kafka_flush(ctypes.c_void_p(client), 10_000)
        elif word == "fail":
            codes = [int(code) for code in rest[1:]]
            failed = kafka.rd_kafka_mock_push_request_errors_array(
                cluster, ctypes.c_int16(int(rest[0])), ctypes.c_size_t(len(codes)), (ctypes.c_int * len(codes))(*codes)
            )
        else:
            failed = word
        print(f"failed: {failed}" if failed else "done", flush=True)


class Cluster:
    """A running cluster, of this test's own.

    It needs a newer librdkafka than users do: with an older one here, the variable names a Python that has one.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [os.environ.get("LEASEHOLD_TEST_MOCK_CLUSTER", sys.executable), __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.servers = self._process.stdout.readline().strip()
        assert self.servers
        self._topics = 0
        self.tell_topic_ids(True)

    def topic(self, partitions: int = 4) -> str:
        """The name of a new topic."""
        self._topics += 1
        self._tell(f"topic events-{self._topics} {partitions}")
        return f"events-{self._topics}"

    def url(self, topic: str, query: str = "") -> str:
        """Where a topic is, for `open_hub`."""
        return f"kafka://{self.servers}/{topic}{'?' if query else ''}{query}"

    def tell_topic_ids(self, whether: bool) -> None:
        """The controller is asked for them; without one there is no answer."""
        self._tell(f"controller {int(whether)}")

    def trim(self, topic: str, partition: str, before: int) -> None:
        """Remove events, as retention does."""
        self._tell(f"trim {topic} {partition} {before}")

    def fail(self, api: int, *codes: int) -> None:
        """Answer the next requests of an API with these errors."""
        self._tell(f"fail {api} {' '.join(map(str, codes))}")

    def produce_header(self, topic: str, name: bytes, value: bytes) -> None:
        """Send a message to partition 0, with one header whose name may be any bytes."""
        self._tell(f"header {topic} x{name.hex()} {value.hex()}")

    def pause(self) -> None:
        """Go silent: connections stay open, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # it stops a little later than it is told

    def resume(self) -> None:
        """Answer again."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Be gone, as after a power loss."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer == "done", (line, answer)


if __name__ == "__main__":
    serve()
