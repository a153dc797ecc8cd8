"""The contract of hubs, as tests: at least one for each sentence of `leasehold.hubs.base`.

A hub is done when it passes. Subclass the class in a test module and give it a fixture `new_hub`, which makes
an empty hub of at least three partitions each time it is called:

    class TestMyHub(HubContract):
        @pytest.fixture
        def new_hub(self, tmp_path): return lambda: MyHub(tmp_path / secrets.token_hex(4))

Override `reopen` to open a hub anew, as another process would, where `open_hub` does not know it; `add_partition`,
`remove_oldest` and `take_away` where such things can be done to the hub (else their tests are skipped).
Nothing here assumes that sequence numbers start at 0 or have no gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from leasehold.backends import masked
from leasehold.errors import ConfigError, HubUnavailable, SchemaMismatch
from leasehold.hubs.base import Hub
from leasehold.model import EARLIEST, LATEST, ConsumerGroup, Event, EventPosition, PartitionProperties, PositionKind
from leasehold_testkit.contracts.hubs.fixtures import bodies_of, numbered, overrides, rows_of
from leasehold_testkit.contracts.hubs.reading import HubReading

COMMITTED = EventPosition(PositionKind.COMMITTED)
ANSWERED = 60.0
"""Seconds after which what was given a second counts as waiting without end, on a busy machine too."""


def told_in_time(ask: Callable[[], object]) -> object:
    """What a hub answers that was given a second. Raises `TimeoutError` where it takes no notice of that."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result(ANSWERED)


class HubContract(HubReading):
    """What every `Hub` must do."""

    # the module

    def test_sequence_numbers_rise_and_events_are_read_in_their_order(self, hub: Hub) -> None:
        for first in (0, 7, 14):
            hub.send(numbered(7, first=first), partition="0")
        rows = rows_of(hub, "0")
        assert [int(row["body"]) for row in rows] == list(range(21))
        numbers = [row["sequenceNumber"] for row in rows]
        assert numbers == sorted(set(numbers))

    def test_a_range_is_half_open(self, hub: Hub) -> None:
        hub.send(numbered(20), partition="0")
        rows = rows_of(hub, "0")
        start, end = rows[5]["sequenceNumber"], rows[15]["sequenceNumber"]
        assert rows_of(hub, "0", start, end) == rows[5:15]
        assert rows_of(hub, "0", start, start) == []

    def test_the_same_range_gives_the_same_events_wherever_it_is_read(
        self, hub: Hub, reopen: Callable[[Hub], Hub]
    ) -> None:
        hub.send(numbered(30), partition="0")
        place = hub.partition_properties()["0"]
        once = rows_of(hub, "0", place.begin, place.end)
        hub.send(numbered(30, first=30), partition="0")
        again = reopen(hub)
        assert rows_of(hub, "0", place.begin, place.end) == once
        assert rows_of(again, "0", place.begin, place.end) == once
        again.close()

    @pytest.mark.parametrize(
        "ask",
        [
            lambda hub: hub.partition_ids(),
            lambda hub: hub.partition_properties(),
            lambda hub: hub.resolve("0", LATEST),
            lambda hub: list(hub.read("0", 0, 1)),
            lambda hub: hub.send(numbered(1), partition="0"),
        ],
        ids=["partition_ids", "partition_properties", "resolve", "read", "send"],
    )
    def test_a_hub_that_is_away_is_unavailable(
        self, hub: Hub, take_away: Callable[[Hub], None], ask: Callable[[Hub], object]
    ) -> None:
        take_away(hub)
        with pytest.raises(HubUnavailable):
            ask(hub)

    # url, identity, consumer_group

    def test_the_url_opens_this_hub_and_holds_no_secret(self, hub: Hub, reopen: Callable[[Hub], Hub]) -> None:
        hub.send(numbered(3), partition="1")
        again = reopen(hub)
        assert bodies_of(again, "1") == [b"0", b"1", b"2"]
        assert again.url == hub.url == masked(hub.url)
        again.close()

    def test_the_identity_is_the_streams(
        self, hub: Hub, new_hub: Callable[[], Hub], reopen: Callable[[Hub], Hub]
    ) -> None:
        again, other = reopen(hub), new_hub()
        assert again.identity == hub.identity
        assert other.identity != hub.identity
        again.close()
        other.close()

    def test_a_consumer_group_is_one_per_hub_and_name(
        self, hub: Hub, new_hub: Callable[[], Hub], reopen: Callable[[Hub], Hub]
    ) -> None:
        again, other = reopen(hub), new_hub()
        group = hub.consumer_group("readers")
        assert isinstance(group, ConsumerGroup)
        assert group.name == "readers"
        assert group == again.consumer_group("readers")
        assert group not in (hub.consumer_group("Readers"), other.consumer_group("readers"))
        again.close()
        other.close()

    # partition_ids, partition_properties

    def test_all_partitions_there_are(self, hub: Hub) -> None:
        partitions = hub.partition_ids()
        assert len(set(partitions)) == len(partitions) >= 3
        assert set(hub.partition_properties()) == set(partitions)

    def test_the_list_of_partitions_may_grow(
        self, hub: Hub, add_partition: Callable[[Hub], None], reopen: Callable[[Hub], Hub]
    ) -> None:
        before, again = hub.partition_ids(), reopen(hub)
        assert again.partition_ids() == before
        add_partition(hub)
        assert len(hub.partition_ids()) == len(before) + 1
        assert set(before) < set(again.partition_ids()) == set(hub.partition_ids())
        new = next(iter(set(hub.partition_ids()) - set(before)))
        again.send(numbered(2), partition=new)
        assert bodies_of(hub, new) == [b"0", b"1"]
        again.close()

    def test_an_empty_partition_begins_where_it_ends(self, hub: Hub) -> None:
        for partition, place in hub.partition_properties().items():
            assert place == PartitionProperties(partition, place.begin, place.begin)

    def test_begin_and_end_enclose_the_events(self, hub: Hub) -> None:
        hub.send(numbered(5), partition="1")
        place = hub.partition_properties()["1"]
        numbers = [row["sequenceNumber"] for row in rows_of(hub, "1")]
        assert place.begin == numbers[0]
        assert place.end > numbers[-1]

    def test_properties_of_the_given_partitions(self, hub: Hub) -> None:
        hub.send(numbered(5), partition="1")
        everything = hub.partition_properties()
        assert hub.partition_properties(["2", "1"]) == {p: everything[p] for p in ("1", "2")}
        assert hub.partition_properties([]) == {}

    def test_a_partition_that_is_not_there(self, hub: Hub) -> None:
        for ask in (
            lambda: hub.partition_properties(["none such"]),
            lambda: hub.resolve("none such", EARLIEST),
            lambda: list(hub.read("none such", 0, 1)),
            lambda: hub.send(numbered(1), partition="none such"),
        ):
            with pytest.raises(ConfigError, match="none such"):
                ask()

    # resolve

    def test_earliest_is_the_begin_and_latest_the_end(self, hub: Hub) -> None:
        hub.send(numbered(5), partition="0")
        place = hub.partition_properties()["0"]
        assert hub.resolve("0", EARLIEST) == place.begin
        assert hub.resolve("0", LATEST) == place.end

    def test_a_sequence_number_stands_for_itself(self, hub: Hub) -> None:
        hub.send(numbered(5), partition="0")
        place = hub.partition_properties()["0"]
        for number in (place.begin, place.begin + 2, place.end):
            position = EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=number)
            assert hub.resolve("0", position) == number

    def test_a_sequence_number_above_the_end_is_refused(self, hub: Hub) -> None:
        hub.send(numbered(5), partition="0")
        above = hub.partition_properties()["0"].end + 1
        with pytest.raises(ConfigError, match=str(above)):
            hub.resolve("0", EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=above))

    def test_an_enqueued_time_is_the_first_event_at_or_after_it(self, hub: Hub) -> None:
        for first in (0, 5, 10):
            hub.send(numbered(5, first=first), partition="0")
        rows = rows_of(hub, "0")
        times = [row["enqueuedTime"].timestamp() for row in rows]
        for at in (0.0, *times, times[-1] + 1):
            found = [row["sequenceNumber"] for row, time in zip(rows, times, strict=True) if time >= at]
            expected = found[0] if found else hub.partition_properties()["0"].end
            assert hub.resolve("0", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=at)) == expected

    def test_an_offset_is_the_event_that_has_it(self, hub: Hub) -> None:
        hub.send(numbered(5), partition="0")
        for row in rows_of(hub, "0"):
            position = EventPosition(PositionKind.OFFSET, offset=row["offset"])
            assert hub.resolve("0", position) == row["sequenceNumber"]
            assert hub.resolve("0", replace(position, inclusive=False)) == row["sequenceNumber"] + 1
        with pytest.raises(ConfigError, match="offset"):
            hub.resolve("0", EventPosition(PositionKind.OFFSET, offset="9" * 15))

    def test_after_a_place_is_the_first_event_behind_it(self, hub: Hub) -> None:
        for first in (0, 5, 10):
            hub.send(numbered(5, first=first), partition="0")
        rows, end = rows_of(hub, "0"), hub.partition_properties()["0"].end
        for row in rows:
            number, at = row["sequenceNumber"], row["enqueuedTime"].timestamp()
            after = EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=number, inclusive=False)
            assert hub.resolve("0", after) == number + 1
            later = [other["sequenceNumber"] for other in rows if other["enqueuedTime"] > row["enqueuedTime"]]
            after = EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=at, inclusive=False)
            assert hub.resolve("0", after) == (later[0] if later else end)
        with pytest.raises(ConfigError, match=f"after {end}"):
            hub.resolve("0", EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=end, inclusive=False))

    def test_an_enqueued_time_in_an_empty_partition_is_the_end(self, hub: Hub) -> None:
        position = EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=0.0)
        assert hub.resolve("0", position) == hub.partition_properties()["0"].end

    def test_committed_is_not_the_hubs_to_resolve(self, hub: Hub) -> None:
        with pytest.raises(ValueError, match="committed"):
            hub.resolve("0", COMMITTED)

    # read_sample

    def test_samples_are_what_read_gives_in_any_order(
        self, hub: Hub, remove_oldest: Callable[[Hub, str], None]
    ) -> None:
        for first in range(0, 100, 10):
            hub.send(numbered(10, first=first), partition="0")
        place = hub.partition_properties()["0"]
        columns = ("sequenceNumber", "body")
        for start in (*range(place.begin, place.end, 7), place.end - 1, place.begin + 3, place.end - 1):
            end = min(start + 2, place.end)
            sample = [row for batch in hub.read_sample("0", start, end, columns=columns) for row in batch.to_pylist()]
            read = [row for batch in hub.read("0", start, end, columns=columns) for row in batch.to_pylist()]
            assert sample == read
            assert len(sample) == end - start
        assert list(hub.read_sample("0", place.begin, place.begin)) == []
        remove_oldest(hub, "0")
        assert list(hub.read_sample("0", place.begin, place.begin + 2)) == []

    # enqueued_times, retention

    def test_times_are_those_of_the_first_events_from_each_place_on(self, hub: Hub) -> None:
        if not overrides(hub, "enqueued_times"):
            pytest.skip("the hub leaves Hub.enqueued_times as it is")
        for first in (0, 5, 10):
            hub.send(numbered(5, first=first), partition="0")
            hub.send(numbered(3, first=first), partition="1")
        zero, one = rows_of(hub, "0"), rows_of(hub, "1")
        for row in (zero[0], zero[6], zero[-1]):
            starts = {"0": row["sequenceNumber"], "1": one[4]["sequenceNumber"]}
            times = hub.enqueued_times(starts, 60.0)
            assert times == {
                "0": pytest.approx(row["enqueuedTime"].timestamp(), abs=1e-6),
                "1": pytest.approx(one[4]["enqueuedTime"].timestamp(), abs=1e-6),
            }

    def test_no_time_where_there_is_no_event(self, hub: Hub) -> None:
        if not overrides(hub, "enqueued_times"):
            pytest.skip("the hub leaves Hub.enqueued_times as it is")
        hub.send(numbered(3), partition="1")
        places = hub.partition_properties()
        assert set(hub.enqueued_times({"0": places["0"].begin, "1": places["1"].begin}, 60.0)) == {"1"}
        assert hub.enqueued_times({name: place.end for name, place in places.items()}, 60.0) == {}
        assert hub.enqueued_times({}, 60.0) == {}

    def test_the_time_of_a_removed_event_is_that_of_the_first_that_is_left(
        self, hub: Hub, remove_oldest: Callable[[Hub, str], None]
    ) -> None:
        if not overrides(hub, "enqueued_times"):
            pytest.skip("the hub leaves Hub.enqueued_times as it is")
        for first in range(0, 100, 10):
            hub.send(numbered(10, first=first), partition="0")
        before = hub.partition_properties()["0"]
        remove_oldest(hub, "0")
        (left, *_) = rows_of(hub, "0")
        assert hub.enqueued_times({"0": before.begin}, 60.0) == {"0": pytest.approx(left["enqueuedTime"].timestamp())}

    def test_the_first_event_is_found_past_what_is_not_there(
        self, hub: Hub, remove_oldest: Callable[[Hub, str], None]
    ) -> None:
        if not hub.has_gaps:
            pytest.skip("the hub's numbers have no gaps")
        for first in range(0, 100, 10):
            hub.send(numbered(10, first=first), partition="0")
        begin, end = hub.partition_properties()["0"].begin, hub.partition_properties()["0"].end
        remove_oldest(hub, "0")
        (left, *_) = rows_of(hub, "0")
        found = hub.first_events({"0": begin, "1": hub.partition_properties()["1"].end}, 10.0)
        assert found["0"].sequence_number == left["sequenceNumber"] > begin
        assert found["0"].enqueued == pytest.approx(left["enqueuedTime"].timestamp())
        assert (found["1"].sequence_number, found["1"].enqueued) == (hub.partition_properties()["1"].end, None)
        assert hub.first_events({"0": end}, 10.0)["0"].sequence_number == end
        assert hub.held_back(hub.partition_ids(), 10.0) == {}

    def test_the_retention_is_none_or_above_zero(self, hub: Hub) -> None:
        retention = hub.retention(5.0)
        assert retention is None or retention > 0

    def test_of_a_hub_that_is_away_no_time_is_known(self, hub: Hub, take_away: Callable[[Hub], None]) -> None:
        hub.send(numbered(3), partition="0")
        begin = hub.partition_properties()["0"].begin
        take_away(hub)
        assert told_in_time(lambda: hub.enqueued_times({"0": begin}, 1.0)) == {}
        assert told_in_time(lambda: hub.first_events({"0": begin}, 1.0)) == {}
        assert told_in_time(lambda: hub.held_back(["0"], 1.0)) == {}
        told_in_time(lambda: hub.retention(1.0))  # whatever it is: it is not raised for

    # what a hub may do beside

    @pytest.mark.parametrize(
        ("ability", "needs"),
        [
            ("one_reader_per_partition", "read_as_owner"),
            ("attach", "stay"),
            ("stay", "detach"),
            ("learn_offsets", "offset_of"),
            ("has_gaps", "first_events"),
            ("has_gaps", "held_back"),
        ],
    )
    def test_who_overrides_a_default_overrides_what_it_needs(self, hub: Hub, ability: str, needs: str) -> None:
        assert overrides(hub, needs) or not overrides(hub, ability)

    def test_what_a_source_brings_again_is_there_once_if_the_hub_remembers_names(self, hub: Hub) -> None:
        named = [(str(number), event) for number, event in enumerate(numbered(3, key="k"))]
        again = 0 if overrides(hub, "send_once") else 3
        for source, appended in (("one", 3), ("one", again), ("another", 3)):
            assert hub.send_once(source, named, remember=3_600.0) == appended
        bodies = [body for partition in hub.partition_ids() for body in bodies_of(hub, partition)]
        assert bodies == [b"0", b"1", b"2"] * (2 if again == 0 else 3)

    # send

    def test_send_returns_how_many_and_they_are_there(self, hub: Hub, reopen: Callable[[Hub], Hub]) -> None:
        assert hub.send(iter(numbered(25)), partition="1") == 25
        again = reopen(hub)
        assert len(bodies_of(again, "1")) == 25
        assert all(bodies_of(again, other) == [] for other in hub.partition_ids() if other != "1")
        assert hub.send([]) == 0
        again.close()

    def test_all_go_to_the_partition_given_whatever_their_keys(self, hub: Hub) -> None:
        hub.send([Event(b"", partition_key=str(number)) for number in range(20)], partition="0")
        assert len(bodies_of(hub, "0")) == 20

    def test_a_key_decides_the_partition_in_every_process(self, hub: Hub, reopen: Callable[[Hub], Hub]) -> None:
        again = reopen(hub)
        keys = [f"key {number % 40} \u00df" for number in range(120)]
        for producer, part in ((hub, keys[:60]), (again, keys[60:])):
            producer.send(Event(str(number).encode(), partition_key=key) for number, key in enumerate(part))
        places: dict[str, set[str]] = {}
        for partition in hub.partition_ids():
            for row in rows_of(hub, partition):
                places.setdefault(row["partitionKey"], set()).add(partition)
        assert set(places) == set(keys)
        assert all(len(partitions) == 1 for partitions in places.values())
        assert len(set().union(*places.values())) > 1
        again.close()

    def test_events_of_a_key_keep_their_order(self, hub: Hub) -> None:
        sent = [Event(str(number).encode(), partition_key=f"{number % 7}") for number in range(100)]
        assert hub.send(sent) == 100
        for partition in hub.partition_ids():
            seen: dict[str, int] = {}
            for row in rows_of(hub, partition):
                assert seen.get(row["partitionKey"], -1) < int(row["body"])
                seen[row["partitionKey"]] = int(row["body"])

    def test_what_is_no_utf8_is_refused_as_the_event_s_fault_and_the_next_is_sent(self, hub: Hub) -> None:
        half = "a\ud800"
        for event in (
            Event(b"", partition_key=half),
            Event(b"", properties={half: "b"}),
            Event(b"", properties={"b": half}),
        ):
            with pytest.raises(SchemaMismatch):
                hub.send([event])
        assert hub.send([Event(b"", partition_key="a")]) == 1

    def test_events_without_a_key_follow_in_turn(self, hub: Hub) -> None:
        count = len(hub.partition_ids())
        hub.send(numbered(count + 1))
        for number in range(2 * count - 1):
            hub.send(numbered(1, first=number))
        assert [len(bodies_of(hub, partition)) for partition in hub.partition_ids()] == [3] * count

    def test_what_is_sent_in_a_span_carries_its_context(self, hub: Hub) -> None:
        sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs opentelemetry-sdk")
        own = Event(b"1", properties={"traceparent": f"00-{7:032x}-{7:016x}-01"})
        with sdk.TracerProvider().get_tracer("contract").start_as_current_span("mine") as span:
            context = span.get_span_context()
            hub.send([Event(b"0", properties={"a": "b"}), own], partition="0")
        hub.send([Event(b"2")], partition="0")
        parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        assert [dict(row["properties"] or ()) for row in rows_of(hub, "0")] == [
            {"a": "b", "traceparent": parent, "Diagnostic-Id": parent},
            dict(own.properties),
            {},
        ]

    # close

    def test_closing_twice_is_fine(self, new_hub: Callable[[], Hub]) -> None:
        hub = new_hub()
        hub.close()
        hub.close()
