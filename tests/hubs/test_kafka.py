"""Kafka as a hub: the contract of hubs, and what this one promises beside it, against librdkafka's mock cluster."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from leasehold.backends import masked
from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError, DataLoss, HubError, HubUnavailable, LeaseholdError, SchemaMismatch
from leasehold.hubs import Hub, open_hub
from leasehold.hubs.arrow_events import events_of
from leasehold.hubs.kafka import reading as kafka_reading
from leasehold.hubs.kafka import topic as kafka_topic
from leasehold.hubs.kafka.clients import failure
from leasehold.hubs.kafka.hub import KafkaHub, open_kafka_hub
from leasehold.hubs.kafka.options import KafkaSettings, parse_kafka_url
from leasehold.installation import command_for
from leasehold.model import Event, EventPosition, PositionKind
from leasehold.processors.events import EventProcessor, Handlers
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.reading import read_ranges
from leasehold_testkit.contracts.hubs.contracts import HubContract
from leasehold_testkit.contracts.hubs.fixtures import bodies_of, numbered, rows_of
from tests.hubs.kafka_cluster import Cluster
from tests.hubs.kafka_hubs import numbers, opened, waits
from tests.hubs.kafka_messages import ODD_NAMES, check_odd_headers, produce_odd_headers, produced
from tests.waiting import NEVER, PATIENCE, until

FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, PRODUCE = 1, 2, 3, 8, 0
"""Numbers of requests in Kafka's protocol."""


pytestmark = pytest.mark.usefixtures("patient_kafka")
"""Where no call can succeed, because nobody answers, a test says so with `waits`."""


def says(kind: type[LeaseholdError], match: str, ask: Callable[[], object]) -> Callable[[], bool]:
    """For `until`: ask, and be refused with these words. With a short time-out a busy machine may have others first."""

    def refused() -> bool:
        with pytest.raises(LeaseholdError) as raised:
            ask()
        return isinstance(raised.value, kind) and re.search(match, str(raised.value)) is not None

    return refused


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.topic(3)


@pytest.fixture
def hub(cluster: Cluster, topic: str) -> Iterator[KafkaHub]:
    hub = opened(cluster.url(topic))
    yield hub
    hub.close()


def as_a_task_reads(hub: Hub, one: ReadRange, column: str) -> Iterator[pa.RecordBatch]:
    return read_ranges(
        hub.url, [one], [column], batch_rows=10, fail_on_data_loss=True, identity=hub.identity, read_for=None
    )


class TestContract(HubContract):
    @pytest.fixture
    def new_hub(self, cluster: Cluster) -> Callable[[], Hub]:
        return lambda: open_hub(cluster.url(cluster.topic(3)))

    @pytest.fixture
    def remove_oldest(self, cluster: Cluster) -> Callable[[Hub, str], None]:
        def remove(hub: Hub, partition: str) -> None:
            cluster.trim(hub.url.rpartition("/")[2], partition, 45)

        return remove

    @pytest.fixture
    def take_away(self, cluster: Cluster) -> Iterator[Callable[[Hub], None]]:
        def pause(hub: Hub) -> None:
            cluster.pause()
            waits(hub, request=1.0, transfer=1.0)

        yield pause
        cluster.resume()


# opening


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("kafka://host:9092", "kafka://host:port"),
        ("kafka:///topic", "kafka://host:port"),
        ("kafka://host:9092/a/b", "the topic of letters"),
        ("kafka://host:9092/..", "the topic of letters"),
        ("kafka://a:1,,b:2/topic", "kafka://host:port"),
        ("kafka://host/topic#x", "write # as %23"),
        ("kafka://me:hidden@host/topic", "Use sasl_username"),
        ("kafka://me:hidden/topic", "user and password are options"),
        ("kafka://host:9092,me:hidden/topic", "user and password are options"),
        ("kafka://hidden:me:9092/topic", "kafka://host:port"),
        ("kafka://me:/topic?sasl_password=hidden", "kafka://host:port"),
        ("kafka://host/topic?sasl_password=a&hidden", "Write an & inside a value as %26"),
        ("kafka://host/topic?sasl_pasword=hidden", "Did you mean sasl_password"),
        ("kafka://host/topic?sasl_password=hidden&sasl.password=hidden", "given twice"),
        ("kafka://host/topic?mirror_offsets=yes", "true or false"),
        ("kafka://host/topic?request_timeout=3", "a number and a unit"),
        ("kafka://host/topic?request_timeout=0s", "100ms to 1h"),
        ("kafka://host/topic?topic_identity=uuid", "id or name"),
        ("kafka://host/topic?security_protocol=none&sasl_password=hidden", "security.protocol"),
        ("kafka://host/topic?security_protocol=SASL_SSL&sasl_mechanism=x&sasl_password=hidden", "SASL mechanism"),
    ],
)
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_hub(url)
    assert why in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_options_are_of_the_url_and_else_of_the_environment() -> None:
    settings = parse_kafka_url(
        "kafka://a:1,b:2/t?sasl.mechanism=PLAIN&sasl_username=$ConnectionString&mirror_offsets=TRUE",
        {
            "LEASEHOLD_KAFKA_SASL_PASSWORD": "Endpoint=sb://x/;SharedAccessKey=a+b/c=",
            "LEASEHOLD_KAFKA_SASL_MECHANISM": "SCRAM-SHA-256",
            "LEASEHOLD_KAFKA_REQUEST_TIMEOUT": "7s",
            "LEASEHOLD_STORE": "memory://x",
        },
    )
    assert settings.client_config == {
        "bootstrap.servers": "a:1,b:2",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": "Endpoint=sb://x/;SharedAccessKey=a+b/c=",
    }
    assert (settings.mirror_offsets, settings.request_timeout, settings.transfer_timeout) == (True, 7.0, 30.0)
    assert settings.url == "kafka://a:1,b:2/t?sasl_mechanism=PLAIN&sasl_username=$ConnectionString&mirror_offsets=TRUE"


def test_a_secret_may_be_in_a_file_and_its_rest_behind_an_ampersand_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("a&b#c\n")
    settings = parse_kafka_url("kafka://h/t", {"LEASEHOLD_KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "word")})
    assert settings.client_config["sasl.password"] == "a&b#c"
    for query in ("sasl_password=a&hidden=b", "ssl_key_pem=a&hidden", "sasl_password=a&x=1&hidden=2"):
        with pytest.raises(ConfigError, match="%26") as refused:
            parse_kafka_url(f"kafka://h/t?{query}", {})
        assert "hidden" not in str(refused.value)
    with pytest.raises(ConfigError, match="colour is not an option"):
        open_hub("kafka://h/t?colour=red")


def test_any_setting_of_the_client_may_be_given_but_those_that_promises_stand_on(cluster: Cluster, topic: str) -> None:
    environment = {"LEASEHOLD_KAFKA_SSL_KEYSTORE_PASSWORD": "hidden", "LEASEHOLD_KAFKA_LINGER_MS": "7"}
    query = "socket.connection.setup.timeout.ms=5000&queued_min_messages=9&ssl.keystore.location=/k&debug=all"
    settings = parse_kafka_url(f"kafka://h/t?{query}", environment)
    assert {**settings.client} == {
        "socket.connection.setup.timeout.ms": "5000",
        "queued.min.messages": "9",
        "ssl.keystore.location": "/k",
        "ssl.keystore.password": "hidden",
        "linger.ms": "7",
        "debug": "all",
    }
    assert "hidden" not in settings.url + repr(settings)
    assert settings.without_secrets("hidden") == "***"
    assert "queued_min_messages=9" in settings.url, "executors read with the same"
    hub = opened(cluster.url(topic, "socket.connection.setup.timeout.ms=5000&linger_ms=1&queued_min_messages=9"))
    hub.send(numbered(3), partition="0")
    assert bodies_of(hub, "0") == [b"0", b"1", b"2"]
    hub.close()
    for name in ("isolation.level", "enable_auto_commit", "acks", "transactional.id", "auto.offset.reset"):
        with pytest.raises(ConfigError, match=rf"^{re.escape(name)}: may not be given: Leasehold's own"):
            parse_kafka_url(f"kafka://h/t?{name}=x", {})
        with pytest.raises(ConfigError, match="may not be given"):
            parse_kafka_url("kafka://h/t", {"LEASEHOLD_KAFKA_" + name.replace(".", "_").upper(): "x"})
    for bad, said in {"linger_ms=soon": "linger.ms", "mirror_ofsets=true": "Did you mean mirror_offsets"}.items():
        with pytest.raises(ConfigError, match=said):
            open_hub(cluster.url(topic, bad))
    with pytest.raises(ConfigError, match=r"sasl.pasword is not an option") as refused:
        open_hub(cluster.url(topic, "sasl_pasword=hidden"))
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("topics", ["a,b", "%5Eflights.*", "flights-*", "^a"])
def test_several_topics_and_patterns_are_refused_by_name(topics: str) -> None:
    with pytest.raises(ConfigError, match="a hub is one topic, without patterns"):
        parse_kafka_url(f"kafka://h:1/{topics}", {})


def test_a_secret_is_taken_as_it_was_pasted_and_never_shown(cluster: Cluster, topic: str) -> None:
    key = "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=a+b/c="
    url = cluster.url(topic, f"client_id=me&sasl_password={key}&ssl_key_password=k%26%23")
    settings = parse_kafka_url(url, {})
    assert settings.client_config["sasl.password"] == key
    assert settings.client_config["ssl.key.password"] == "k&#"
    hub = opened(url)
    shown = (repr(settings), repr(hub), hub.url, hub.identity, settings.url, masked(url), str(hub.consumer_group("g")))
    for text in shown:
        assert "a+b" not in text
        assert "k&#" not in text
    assert hub.url == cluster.url(topic, "client_id=me")
    assert settings.without_secrets(f"login with {key} failed") == "login with *** failed"
    hub.close()


def test_the_identity_is_of_the_cluster_the_topic_and_its_id(cluster: Cluster, topic: str, hub: KafkaHub) -> None:
    assert re.fullmatch(rf"mockCluster\w+:{topic}:[\w-]{{22}}", hub.identity)
    other = opened(cluster.url(topic, "client_id=other&request_timeout=20s"))
    assert other.identity == hub.identity
    named = opened(cluster.url(topic, "cluster_id=ours&topic_identity=name"))
    assert named.identity == f"ours:{topic}"
    assert str(named.consumer_group("g")) == f"ours/{topic}/g"
    for one in (other, named):
        assert one.partition_ids() == ("0", "1", "2")
        one.close()


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(
    hub: KafkaHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock cluster cannot make a topic anew, so the hub is told that it had another id before."""
    hub.send(numbered(5), partition="0")
    monkeypatch.setattr(hub._here.topic, "expected", "A" * 22)
    for ask in (
        hub.partition_ids,
        hub.partition_properties,
        lambda: hub.send([]),
        lambda: list(hub.read("0", 0, 5)),
    ):
        with pytest.raises(HubError, match="deleted and made anew"):
            ask()


def test_a_cluster_that_tells_no_topic_ids_is_not_taken_by_name_unasked(cluster: Cluster, topic: str) -> None:
    cluster.tell_topic_ids(False)
    try:
        url = cluster.url(topic, "request_timeout=1s")  # impatient: nobody tells the id, and until() asks again
        match = r"topic's id failed.*topic_identity=name"
        until(says(HubUnavailable, match, lambda: open_hub(url)), "the cluster to tell all but the id")
        by_name = opened(cluster.url(topic, "topic_identity=name"))
        assert by_name.identity.endswith(f":{topic}")
        by_name.close()
    finally:
        cluster.tell_topic_ids(True)


def test_an_unknown_topic_is_not_made(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topic, "_BEHIND", 0.0)
    for _ in range(2):
        with pytest.raises(ConfigError, match="the cluster has no topic nosuch"):
            open_hub(cluster.url("nosuch"))


ASKING = """
import sys
from leasehold.errors import LeaseholdError
from leasehold.hubs import open_hub
hub = None
for line in sys.stdin:
    try:
        hub = hub or open_hub(sys.argv[1])
        print(*hub.partition_ids(), flush=True)
    except LeaseholdError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.more
@pytest.mark.parametrize(
    ("code", "times"),
    [
        (KafkaError.UNKNOWN, 20),
        (KafkaError.LEADER_NOT_AVAILABLE, 20),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, 60),  # which is asked again, ten times a second, for three
    ],
)
def test_metadata_that_fails_ends_no_process(cluster: Cluster, topic: str, code: int, times: int) -> None:
    """In a process of its own, since librdkafka would abort it."""
    command = [sys.executable, "-c", ASKING, cluster.url(topic)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:

        def asked() -> str:
            assert peer.stdin is not None
            assert peer.stdout is not None
            peer.stdin.write("\n")
            peer.stdin.flush()
            return peer.stdout.readline().strip()

        assert asked() == "0 1 2"
        cluster.fail(METADATA, *[code] * times)
        assert asked() in ("HubUnavailable", "HubError", "ConfigError")
        while (answer := asked()) != "0 1 2":
            assert answer, "the process has ended"
    assert peer.returncode == 0


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again(cluster: Cluster, topic: str, hub: KafkaHub) -> None:
    cluster.fail(METADATA, *[KafkaError.UNKNOWN_TOPIC_OR_PART] * 3)
    assert hub.partition_ids() == ("0", "1", "2")


@pytest.mark.parametrize(
    "query", ["", "security_protocol=SASL_SSL&sasl_mechanism=PLAIN&sasl_username=u&sasl_password=hidden"]
)
def test_nobody_at_the_address(query: str) -> None:
    said: list[str] = []

    def ask() -> None:
        try:
            url = f"kafka://127.0.0.1:1/t?request_timeout=1s&{query}"  # impatient: nobody is there
            open_hub(url.removesuffix("&"))
        except HubUnavailable as error:
            said.append(str(error))
            raise

    until(says(HubUnavailable, r"asking for the topic failed.*Connection refused", ask), "the refusal")
    assert "hidden" not in "".join(said)


def test_an_answer_that_refuses_is_told_from_one_that_is_late() -> None:
    settings = KafkaSettings(servers="h:1", topic="t", client={"sasl.password": "hidden"})
    kinds: dict[int, type[LeaseholdError]] = {
        KafkaError.SASL_AUTHENTICATION_FAILED: HubError,
        KafkaError.TOPIC_AUTHORIZATION_FAILED: HubError,
        KafkaError.UNKNOWN_TOPIC_OR_PART: ConfigError,
        KafkaError._TRANSPORT: HubUnavailable,
        KafkaError.NOT_LEADER_FOR_PARTITION: HubUnavailable,
        KafkaError.POLICY_VIOLATION: HubError,
    }
    for code, kind in kinds.items():
        error = failure(settings, KafkaError(code, "said hidden"), "asking")
        assert type(error) is kind
        assert "hidden" not in str(error)
        assert type(pickle.loads(pickle.dumps(error))) is kind  # noqa: S301 - as Spark does


# what an event is


def test_keys_headers_and_times_of_other_producers(cluster: Cluster, topic: str, hub: KafkaHub) -> None:
    produced(
        cluster,
        topic,
        {"value": b"\xff", "key": "sch\u00f6n", "headers": [("a", b"1"), ("b", None), ("a", b"2")], "timestamp": 1_500},
        {"value": None, "key": b"\xff\x00", "headers": [("bin", b"\xfe")], "timestamp": 2_000},
        {"value": b"", "key": b""},
    )
    first, second, third = rows_of(hub, "0")
    assert (first["body"], first["partitionKey"], dict(first["properties"])) == (
        b"\xff",
        "sch\u00f6n",
        {"a": "2", "b": None},
    )
    assert first["enqueuedTime"] == datetime.fromtimestamp(1.5, UTC)
    assert (second["body"], second["partitionKey"]) == (None, "\\xff\x00")
    assert dict(second["properties"]) == {"bin": "\\xfe"}
    assert dict(second["systemProperties"]) == {"keyBase64": "/wA=", "headersBase64": '[["bin", "/g=="]]'}
    assert (third["body"], third["partitionKey"], dict(third["properties"])) == (b"", "", {})
    assert [(row["sequenceNumber"], row["offset"], row["publisher"]) for row in (first, second, third)] == [
        (0, "0", None),
        (1, "1", None),
        (2, "2", None),
    ]
    assert dict(first["systemProperties"]) == {"headersBase64": '[["a", "MQ=="], ["b", null], ["a", "Mg=="]]'}
    assert dict(third["systemProperties"]) == {}
    (rows,), (chunk,) = hub.read("0", 0, 3), hub.read_chunks("0", 0, 3)
    assert chunk.events() == events_of(rows), "the same without the detour through Arrow"


def test_a_message_whose_header_has_no_name_in_utf8_is_delivered(cluster: Cluster, topic: str, hub: KafkaHub) -> None:
    produce_odd_headers(cluster, topic)
    check_odd_headers([(dict(row["properties"]), dict(row["systemProperties"])) for row in rows_of(hub, "0")])
    (chunk,) = hub.read_chunks("0", 0, len(ODD_NAMES) + 2)
    for events in (chunk.events(), chunk.part(0, 4).events() + chunk.part(4, 8).events()):
        check_odd_headers([(dict(event.properties), dict(event.system_properties)) for event in events])


def test_the_plain_processor_is_given_whatever_a_message_holds(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    produce_odd_headers(cluster, topic)
    headers = [("n", b"1"), ("n", b"\xff"), ("none", None)]
    produced(cluster, topic, {"value": None, "key": b"\xff", "headers": headers})
    seen: list[Event] = []
    errors: list[object] = []
    with EventProcessor(
        f"{cluster.url(topic)}",
        f"sqlite:///{tmp_path}/store.db",
        Handlers(lambda batch, context: seen.extend(batch), on_error=lambda error, partition: errors.append(error)),
        ownership=OwnershipSettings(settle_delay=0),
    ):
        until(lambda: len(seen) > len(ODD_NAMES) + 2, "all messages")
    *odd, last = sorted(seen, key=lambda event: event.sequence_number)
    check_odd_headers([(dict(event.properties), dict(event.system_properties)) for event in odd])
    found: Sequence[object] = (last.body, last.partition_key, dict(last.properties))
    assert found == (None, "\\xff", {"n": "\\xff", "none": None})
    exact = last.system_properties["headersBase64"]
    assert [(name, value and b64decode(value)) for name, value in json.loads(exact)] == headers
    assert last.system_properties["keyBase64"] == "/w=="
    assert errors == []


def test_what_the_time_of_a_message_is_can_be_asked_for(cluster: Cluster, topic: str) -> None:
    produced(cluster, topic, {"value": b"x", "headers": [("a", b"\xff")]}, {"value": b"y"})
    hub = opened(cluster.url(topic, "timestamp_type=true"))
    assert hub.url.endswith("?timestamp_type=true"), "executors read the same"
    first, second = (dict(row["systemProperties"]) for row in rows_of(hub, "0"))
    assert first == {"headersBase64": '[["a", "/w=="]]', "timestampType": "CreateTime"}
    assert second == {"timestampType": "CreateTime"}
    (chunk,) = hub.read_chunks("0", 0, 2)
    assert [dict(event.system_properties) for event in chunk.part(1, 2).events()] == [second]
    hub.close()


def test_the_offset_of_an_event_is_known_without_asking(hub: KafkaHub) -> None:
    assert [hub.offset_of("0", number) for number in (-1, 0, 17)] == [None, "0", "17"]


def test_a_time_that_is_no_date_is_unknown(cluster: Cluster, topic: str, hub: KafkaHub) -> None:
    """Some producers write microseconds or nanoseconds where milliseconds belong."""
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    times = (1_700_000_000_000_000_000, 1_700_000_000_000_000, 1, round(last.timestamp() * 1000))
    for at in times:
        produced(cluster, topic, {"value": b"a", "timestamp": at})
    assert [row["enqueuedTime"] for row in rows_of(hub, "0")] == [None, None, datetime.fromtimestamp(0.001, UTC), last]
    (chunk,) = hub.read_chunks("0", 0, 4)
    assert [event.enqueued_time for event in chunk.events()] == [0.0, 0.0, 0.001, last.timestamp()]


def murmur2(data: bytes) -> int:
    """The hash of Kafka's Java producer, written from its description."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    value = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        value = (value * m & mask) ^ k
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * m & mask
    value = (value ^ value >> 13) * m & mask
    return value ^ value >> 15


def test_a_key_goes_where_kafkas_own_producers_put_it(hub: KafkaHub) -> None:
    assert murmur2(b"foobar") - (1 << 32) == -790332482  # from Kafka's own tests
    keys = [*(f"key-{number}" for number in range(50)), "", "sch\u00f6n", "\U0001f511"]
    hub.send([Event(key.encode(), partition_key=key) for key in keys])
    for partition in hub.partition_ids():
        for body in bodies_of(hub, partition):
            assert (murmur2(body) & 0x7FFFFFFF) % 3 == int(partition)


def test_events_that_a_message_cannot_hold_are_refused(hub: KafkaHub) -> None:
    wrong: tuple[tuple[Event, str], ...] = (
        (Event(b"", publisher="p"), "publisher"),
        (Event("text"), "body is bytes"),  # type: ignore[arg-type]
        (Event(b"", properties={"a": 1}), "map text to text"),  # type: ignore[dict-item]
        (Event(b"", partition_key=7), "key text"),  # type: ignore[arg-type]
        (Event(b"x" * 2_000_000), "message_max_bytes"),
    )
    for event, why in wrong:
        with pytest.raises(SchemaMismatch, match=why):
            hub.send([Event(b"before"), event], partition="0")
    assert bodies_of(hub, "0") == [b"before"] * len(wrong)
    assert hub.send(numbered(3), partition="0") == 3


# ranges


def test_any_range_is_exact_in_any_order(hub: KafkaHub) -> None:
    for first in range(0, 3_000, 100):
        hub.send(numbered(100, first=first), partition="0")
    dice = random.Random(7)
    at = 0
    for _ in range(40):
        start = at if dice.random() < 0.5 else dice.randrange(3_000)
        at = end = min(start + dice.choice([1, 10, 700]), 3_000)
        assert numbers(hub, "0", start, end) == list(range(start, end))


def test_a_range_that_continues_needs_no_seek(hub: KafkaHub, monkeypatch: pytest.MonkeyPatch) -> None:
    sought: list[int] = []
    original = kafka_reading.PartitionReader._assign

    def noted(reader: kafka_reading.PartitionReader) -> None:
        sought.append(reader._seen)
        original(reader)

    monkeypatch.setattr(kafka_reading.PartitionReader, "_assign", noted)
    hub.send(numbered(100), partition="0")
    assert numbers(hub, "0", 0, 30) == list(range(30))
    assert numbers(hub, "0", 30, 60) == list(range(30, 60))
    assert numbers(hub, "0", 60, 100) == list(range(60, 100))
    hub.send(numbered(10), partition="0")
    assert numbers(hub, "0", 100, 110) == list(range(100, 110))
    assert sought == [0]
    assert numbers(hub, "0", 30, 60) == list(range(30, 60))
    assert sought == [0, 30]


def test_a_range_beyond_the_end_gives_what_there_is(hub: KafkaHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the end is asked for, it is asked for once: a pause before the next time would take too long."""
    monkeypatch.setattr(kafka_reading, "_END_PAUSE", NEVER)
    monkeypatch.setattr(kafka_topic, "_MOVING_PAUSE", NEVER)
    hub.send(numbered(10), partition="0")
    assert numbers(hub, "0", 5, 500) == [5, 6, 7, 8, 9]
    for _ in range(2):
        assert numbers(hub, "0", 10, 20) == []
        assert numbers(hub, "0", 400, 500) == []
    assert numbers(hub, "0", 8, 3) == []
    hub.send(numbered(10), partition="0")
    assert numbers(hub, "0", 10, 20) == list(range(10, 20))


def test_an_end_that_is_told_too_low_does_not_cut_a_range_short(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was deposed and does not know it tells an old end. Here the end comes while a read waits."""
    hub, other = opened(cluster.url(topic, f"request_timeout={NEVER:g}s")), opened(cluster.url(topic))
    other.send(numbered(10), partition="0")
    questions: list[object] = []
    offsets = hub._here.topic._offsets

    def noted(*arguments: Any) -> dict[int, int]:
        questions.append(arguments)
        return offsets(*arguments)

    monkeypatch.setattr(hub._here.topic, "_offsets", noted)
    for start, end in ((0, 20), (25, 30)):
        questions.clear()
        with ThreadPoolExecutor(1) as pool:
            read = pool.submit(numbers, hub, "0", start, end)
            until(lambda: len(questions) >= 4, "the reader to ask for begin and end once more")
            other.send(numbered(end - other.partition_properties()["0"].end), partition="0")
            assert read.result(PATIENCE) == list(range(start, end))
    hub.close()
    other.close()


def test_two_reads_of_one_partition_at_once_and_one_that_is_abandoned(hub: KafkaHub) -> None:
    hub.send(numbered(300), partition="0")
    reads = [hub.read("0", first, 300, columns=["sequenceNumber"], batch_rows=10) for first in (0, 100)]
    seen: list[list[int]] = [[], []]
    for _ in range(20):
        for read, so_far in zip(reads, seen, strict=True):
            so_far += next(read).column(0).to_pylist()
    assert seen == [list(range(200)), list(range(100, 300))]
    for read in reads:
        read.close()  # type: ignore[attr-defined]
    assert numbers(hub, "0", 200, 300) == list(range(200, 300))
    assert numbers(hub, "0", 0, 300) == list(range(300))


@pytest.mark.parametrize(
    ("arrived", "kept"),
    [
        ([5, 6, 7, 5, 6, 7, 8], [5, 6, 7, 8]),
        ([5, 6, 3, 4, 7], [5, 6, 7]),
        ([3, 4, 5, 6], [5, 6]),
        ([3, 4], []),
        ([5, 9, 9, 8, 10], [5, 9, 10]),
    ],
)
def test_what_a_consumer_gives_twice_is_taken_once(
    cluster: Cluster, topic: str, hub: KafkaHub, arrived: list[int], kept: list[int]
) -> None:
    """Librdkafka has been seen to go back by itself. The mock cluster does not, so what comes is put together here."""
    events: list[dict[str, object]] = [{"value": str(number).encode()} for number in range(11)]
    produced(cluster, topic, *events)
    with hub._here.readers.reader(0, 0) as reader:
        (messages,) = reader.messages(0, 11, 100)
    with hub._here.readers.reader(0, 5) as reader:
        reader._seek(5, 11)
        assert not reader._note([messages[number] for number in arrived])
        assert [message.offset() for message in reader._waiting] == reader._offsets == kept
        assert reader._seen == (kept[-1] + 1 if kept else 5)


def test_gaps_do_not_hang_a_range(hub: KafkaHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction and marks of transactions leave gaps. The mock cluster has none, so they are cut into what comes."""
    gone = {*range(0, 5), *range(20, 40), *range(47, 50)}
    original = kafka_reading.PartitionReader._arrived

    def with_gaps(reader: kafka_reading.PartitionReader, patience: float, end: int, wanted: int) -> list[Message]:
        arrived = original(reader, patience, end, wanted)
        return [m for m in arrived if m.error() is not None or m.offset() not in gone]

    hub.send(numbered(50), partition="0")
    monkeypatch.setattr(kafka_reading.PartitionReader, "_arrived", with_gaps)
    left = [number for number in range(50) if number not in gone]
    for cuts in ([0, 50], [0, 3, 25, 30, 50], [0, 5, 20, 40, 47, 50], [0, 20, 21, 22, 48, 49, 50], [47, 48, 49, 50]):
        pieces = [numbers(hub, "0", start, end) for start, end in itertools.pairwise(cuts)]
        assert [number for piece in pieces for number in piece] == [number for number in left if number >= cuts[0]]
        for piece, start, end in zip(pieces, cuts[:-1], cuts[1:], strict=True):
            assert all(start <= number < end for number in piece)
    # As a Spark task reads it: gaps are no loss.
    rows = as_a_task_reads(hub, ReadRange("0", 0, 50, 1), "sequenceNumber")
    assert sum(batch.num_rows for batch in rows) == len(left)


def test_retention_that_overtakes_a_read_leaves_out_what_is_gone(
    cluster: Cluster, topic: str, hub: KafkaHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(0, 100, 10):
        hub.send(numbered(10, first=first), partition="0")
    assert numbers(hub, "0", 0, 10) == list(range(10))
    cluster.trim(topic, "0", 50)
    assert numbers(hub, "0", 0, 100) == list(range(50, 100))
    with pytest.raises(DataLoss, match=r"\[0, 50\)"):
        list(as_a_task_reads(hub, ReadRange("0", 0, 100, 1), "body"))


def test_a_position_that_is_gone_while_a_reader_waits_there(cluster: Cluster, topic: str, hub: KafkaHub) -> None:
    hub.send(numbered(10), partition="0")
    assert numbers(hub, "0", 0, 10) == list(range(10))
    cluster.pause()  # so that the reader, which waits at 10, does not see what comes
    cluster.resume()
    other = opened(hub.url)
    for first in range(10, 60, 10):
        other.send(numbered(10, first=first), partition="0")
    cluster.trim(topic, "0", 40)
    read = numbers(hub, "0", 10, 60)
    ahead = [number for number in read if number < 40]  # what it had fetched before they were removed
    assert read == [*range(10, 10 + len(ahead)), *range(40, 60)]
    other.close()


# positions


def test_times_are_found_in_a_cluster_that_cannot_look_them_up(
    cluster: Cluster, topic: str, hub: KafkaHub, caplog: pytest.LogCaptureFixture
) -> None:
    for milliseconds in (1_000, 3_000, 2_000, 5_000):
        produced(cluster, topic, {"value": b"", "timestamp": milliseconds})
    expected = {0.0: 0, 1.0: 0, 1.000001: 1, 2.5: 1, 3.0: 1, 3.001: 3, 5.0: 3, 5.0001: 4, 9e9: 4}
    for at, number in expected.items():
        assert hub.resolve("0", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=at)) == number
    assert "cannot look up times" in caplog.text


# faults


def test_a_broker_that_is_gone_is_noticed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as a request has had its time: nothing waits for progress, for which there is time without end."""
    cluster = Cluster()
    topic = cluster.topic(3)
    hub = opened(cluster.url(topic))
    hub.send(numbered(100), partition="0")
    assert numbers(hub, "0", 0, 50) == list(range(50))
    read = hub.read("0", 50, 100, batch_rows=10)
    next(read)
    cluster.kill()
    waits(hub, request=1.0, transfer=NEVER)
    monkeypatch.setenv("LEASEHOLD_KAFKA_REQUEST_TIMEOUT", "1s")
    monkeypatch.setenv("LEASEHOLD_KAFKA_TRANSFER_TIMEOUT", f"{NEVER:g}s")
    for ask in (
        lambda: numbers(hub, "0", 90, 200),
        lambda: numbers(hub, "1", 0, 10),
        lambda: hub.partition_properties(),
        lambda: hub.send(numbered(1)),
        lambda: open_hub(hub.url),
    ):
        with pytest.raises(HubUnavailable, match=r"Check that the brokers can be reached"):
            ask()
    hub.mirror("g", {"0": 1})
    hub.close()


def test_a_silent_broker_fails_a_read_that_waits_and_its_return_is_noticed(cluster: Cluster, hub: KafkaHub) -> None:
    hub.send(numbered(10), partition="0")
    assert numbers(hub, "0", 0, 10) == list(range(10))
    hub.send(numbered(10), partition="1")
    cluster.pause()
    waits(hub, request=1.5, transfer=1.5)
    try:
        with pytest.raises(HubUnavailable, match=r"partition 0 from offset 10 on|asking for offsets"):
            numbers(hub, "0", 10, 20)
    finally:
        cluster.resume()
    waits(hub)
    hub.send(numbered(10), partition="0")
    assert numbers(hub, "0", 10, 20) == list(range(10, 20))


def test_passing_faults_of_a_broker_cost_nothing(cluster: Cluster, topic: str, hub: KafkaHub) -> None:
    not_leader, timed_out = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REQUEST_TIMED_OUT
    cluster.fail(PRODUCE, not_leader, timed_out)
    assert hub.send(numbered(50), partition="0") == 50
    cluster.fail(FETCH, not_leader, timed_out, not_leader)
    assert numbers(hub, "0", 0, 50) == list(range(50))
    assert bodies_of(hub, "0") == [b"%d" % number for number in range(50)]
    cluster.fail(LIST_OFFSETS, not_leader, not_leader)
    assert hub.partition_properties()["0"].end == 50


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
def test_what_is_sent_behind_a_list_that_is_refused_is_not_appended_before_it(
    cluster: Cluster, topic: str, hub: KafkaHub, code: int
) -> None:
    """The broker refuses the first list, and would take the ones behind it: an outbox sends all of them again."""
    events = [Event(b"x" * 3_000, partition_key="k") for _ in range(1_000)]
    cluster.fail(0, code)
    with pytest.raises(SchemaMismatch, match="an event was refused, or others with it"):
        hub.send(iter(events))
    assert sum(each.end for each in hub.partition_properties().values()) == 0
    assert hub.send(iter(events[:3])) == 3


def test_a_send_that_is_refused_says_so_and_the_next_one_works(cluster: Cluster, topic: str, hub: KafkaHub) -> None:
    cluster.fail(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(HubError, match=r"sending was refused.*may describe, read and"):
        hub.send(numbered(5), partition="0")
    assert hub.send(numbered(5), partition="0") == 5
    assert bodies_of(hub, "0") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_broker_that_falls_silent_during_a_send(cluster: Cluster, hub: KafkaHub) -> None:
    def events() -> Iterator[Event]:
        yield from numbered(1, first=1)
        cluster.pause()
        waits(hub, request=1.0, transfer=1.5)
        yield from numbered(5, first=2)

    waits(hub, transfer=1.5)
    try:
        with pytest.raises(HubUnavailable, match="sending failed"):
            hub.send(events(), partition="0")
    finally:
        cluster.resume()
    waits(hub)
    assert hub.send(numbered(3, first=100), partition="0") == 3
    assert bodies_of(hub, "0")[-3:] == [b"100", b"101", b"102"]


def test_what_the_giver_of_events_raises_comes_out_and_what_was_before_it_is_sent(hub: KafkaHub) -> None:
    def events() -> Iterator[Event]:
        yield from numbered(3)
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        hub.send(events(), partition="0")
    assert bodies_of(hub, "0") == [b"0", b"1", b"2"]


def test_threads_share_one_object(hub: KafkaHub) -> None:
    def work(name: int) -> int:
        for number in range(10):
            hub.send([Event(f"{name} {number} {row}".encode()) for row in range(4)], partition="0")
            rows = rows_of(hub, "0")
            assert [row["sequenceNumber"] for row in rows] == list(range(len(rows)))
        return hub.send(numbered(10), partition="1")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [10] * 4
    texts = [tuple(map(int, body.split())) for body in bodies_of(hub, "0")]
    for name in range(4):
        assert [rest for owner, *rest in texts if owner == name] == [[n, row] for n in range(10) for row in range(4)]
    assert len(bodies_of(hub, "1")) == 40


# processes

MISSING = """
import sys
sys.modules["confluent_kafka"] = None  # as if it were not installed
from leasehold.errors import MissingDependency
from leasehold.hubs import open_hub
try:
    open_hub("kafka://host/topic?sasl_password=hidden")
except MissingDependency as error:
    print(error)
"""


def test_a_missing_package_names_the_extra() -> None:
    out = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, timeout=PATIENCE, text=True)
    assert command_for("kafka") in out.stdout, out.stderr
    assert "hidden" not in out.stdout


LEFT_OPEN = """
import os, signal, sys, time
from leasehold.hubs import open_hub
from leasehold.model import Event
hub = open_hub(sys.argv[1])
hub.send([Event(b"x")] * 100, partition="0")
read = hub.read("0", 0, 100, batch_rows=10)
next(read)
hub.mirror("left", {"0": 1})
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.more
def test_a_process_that_closes_nothing_ends_at_once_also_without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waited for an answer, or for progress, would not end before the test loses its patience."""
    for name in ("REQUEST", "TRANSFER"):
        monkeypatch.setenv(f"LEASEHOLD_KAFKA_{name}_TIMEOUT", f"{2 * PATIENCE:g}s")
    cluster = Cluster()
    url = cluster.url(cluster.topic(3), "mirror_offsets=true")
    peers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", LEFT_OPEN, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for peer in peers:
        assert peer.stdout is not None
        assert peer.stdout.readline() == "ready\n"
    for peer in peers:
        out, errors = peer.communicate("go\n", timeout=PATIENCE)
        assert (peer.returncode, out, errors) == (0, "", "")
        if peer is peers[0]:
            cluster.kill()


READ_ALL = """
import json, sys
from leasehold.hubs import open_hub
hub = open_hub(sys.argv[1])
print(json.dumps([hub.identity, {p: sum(b.num_rows for b in hub.read(p, place.begin, place.end))
    for p, place in hub.partition_properties().items()}]))
hub.send([])
hub.close()
"""


@pytest.mark.more
def test_another_process_reads_the_same(hub: KafkaHub) -> None:
    hub.send(Event(b"", partition_key=str(number)) for number in range(200))
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ_ALL, hub.url], capture_output=True, timeout=PATIENCE
    )
    assert out.returncode == 0, out.stderr.decode()
    identity, counts = json.loads(out.stdout)
    assert identity == hub.identity
    assert counts == {p: place.end - place.begin for p, place in hub.partition_properties().items()}
    assert sum(counts.values()) == 200
    assert out.stderr == b""


FORK = """
import gc, os, sys
from leasehold.hubs import open_hub
from leasehold.model import Event
hub = open_hub(sys.argv[1])
hub.send([Event(b"%d" % n) for n in range(100)], partition="0")
count = lambda start: sum(b.num_rows for b in hub.read("0", start, 100))
assert count(0) == 100
under_way = hub.read("0", 0, 100, batch_rows=10)
next(under_way)
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        if number == 0:
            sys.exit(0)  # unused, to the very end of the interpreter
        if number == 1:
            hub.close()
        else:
            del under_way
            gc.collect()
        assert count(0) == 100
        assert hub.send([Event(b"child")], partition="1") == 1
        hub.close()
        sys.exit(0)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
assert count(50) == 50
assert sum(b.num_rows for b in under_way) == 90
assert sum(b.num_rows for b in hub.read("1", 0, 2)) == 2
hub.close()
print("done")
"""


@pytest.mark.more
def test_a_process_that_is_forked_after_use_goes_on_and_so_does_its_child(hub: KafkaHub) -> None:
    out = subprocess.run([sys.executable, "-c", FORK, hub.url], capture_output=True, timeout=PATIENCE)
    assert (out.returncode, out.stdout) == (0, b"done\n"), out.stderr.decode()


def test_what_was_acknowledged_before_a_producer_was_killed_is_there(hub: KafkaHub) -> None:
    script = (
        "import itertools, sys; from leasehold.hubs import open_hub; from leasehold.model import Event\n"
        "hub = open_hub(sys.argv[1])\n"
        "for n in itertools.count():\n"
        "    hub.send([Event(b'%d' % n)] * 10, partition='2'); print(n, flush=True)\n"
    )
    peer = subprocess.Popen([sys.executable, "-c", script, hub.url], stdout=subprocess.PIPE, text=True)
    assert peer.stdout is not None
    for _ in range(20):
        peer.stdout.readline()
    peer.kill()
    rest = peer.communicate()[0].split()
    last = int(rest[-1]) if rest else 19
    counts = dict.fromkeys(range(last + 1), 0)
    for body in bodies_of(hub, "2"):
        counts[int(body)] = counts.get(int(body), 0) + 1
    assert all(counts[n] == 10 for n in range(last + 1))


# progress mirrored into the broker


def committed(cluster: Cluster, topic: str, group: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": group, "log_level": 0})
    (place,) = consumer.committed([TopicPartition(topic, partition)], timeout=PATIENCE)
    consumer.close()
    assert place.error is None
    return place.offset


def test_progress_is_mirrored_on_request(cluster: Cluster, topic: str) -> None:
    hub = opened(cluster.url(topic, "mirror_offsets=true"))
    hub.send(numbered(30))
    for number in range(11):
        hub.mirror("$Default", {"0": number, "1": 7})
    hub.mirror("other", {"0": 3})
    hub.close()
    assert committed(cluster, topic, "$Default", 0) == 10
    assert committed(cluster, topic, "$Default", 1) == 7
    assert committed(cluster, topic, "$Default", 2) < 0
    assert committed(cluster, topic, "other", 0) == 3


def test_progress_whose_mirroring_was_refused_is_mirrored_with_the_next(
    cluster: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    hub = opened(cluster.url(topic, "mirror_offsets=true"))
    cluster.fail(OFFSET_COMMIT, *[KafkaError.GROUP_AUTHORIZATION_FAILED] * 3)

    def refused(number: int) -> bool:
        hub.mirror("refused", {"0": number})
        return "not brought up to date" in caplog.text

    until(lambda: refused(5), "the refusal")
    until(lambda: _mirrored(hub, cluster, topic) == 7, "the offset to be there")
    assert caplog.text.count("not brought up to date") == 1
    assert committed(cluster, topic, "refused", 0) == 5, "of a partition that has stood still since"
    hub.close()


def _mirrored(hub: KafkaHub, cluster: Cluster, topic: str) -> int:
    hub.mirror("refused", {"1": 7})
    return committed(cluster, topic, "refused", 1)


def test_progress_is_not_mirrored_unasked(cluster: Cluster, topic: str, hub: KafkaHub) -> None:
    hub.mirror("quiet", {"0": 3})
    hub.close()
    assert committed(cluster, topic, "quiet", 0) < 0


def test_mirroring_never_waits_and_never_raises(cluster: Cluster, topic: str) -> None:
    """Each call that waited would do so for as long as a request may take. Closing does, once."""
    hub = opened(cluster.url(topic, "mirror_offsets=true"))
    cluster.pause()
    try:
        for number in range(1_000):
            hub.mirror("paused", {"0": number})
        waits(hub, request=1.0)
        hub.close()
    finally:
        cluster.resume()


def test_opening_by_hand(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    hub = open_kafka_hub(cluster.url(topic), tmp_path)
    assert hub.partition_ids() == ("0", "1", "2")
    hub.close()
