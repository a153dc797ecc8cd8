"""`leasehold checkpoints`: what goes out and comes in, what is refused, and what is said about it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from leasehold.cli.app import app
from leasehold.cli.checkpoints import formats as checkpoint_formats
from leasehold.cli.checkpoints.command import checkpoints
from leasehold.cli.checkpoints.formats import Document, number, text
from leasehold.cli.checkpoints.moves import plan_moves
from leasehold.hubs.log.hub import LogHub
from leasehold.model import BEFORE_FIRST, Checkpoint, ConsumerGroup
from leasehold.stores import PipelineBinding, Store, open_store
from leasehold.stores.base import SchemaKeeper
from leasehold_testkit.contracts.hubs.fixtures import numbered

GROUP = ConsumerGroup("tests.example", "hub", "$Default")
OTHER = ConsumerGroup("tests.example", "hub", "é / other")
NAMED = ("--group", "tests.example/hub/$Default")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def store(url: str) -> Store:
    """The store at the URL, made as `leasehold init` makes it."""
    store = open_store(url)
    assert isinstance(store, SchemaKeeper)
    store.create_schema()
    return store


def run(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(app, ["checkpoints", *arguments], input=given)


def done(*arguments: str, given: str = "") -> str:
    result = run(*arguments, given=given)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def refused(*arguments: str, given: str = "") -> str:
    result = run(*arguments, given=given)
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


def written(store: Store, group: ConsumerGroup = GROUP) -> dict[str, tuple[int, int, str | None]]:
    return {c.partition: (c.sequence_number, c.owner_level, c.offset) for c in store.list_checkpoints(group)}


def line(partition: str = "0", sequence_number: object = 10, level: object = 3, **other: object) -> str:
    document = {"namespace": "tests.example", "hub": "hub", "consumerGroup": "$Default", "partition": partition}
    return json.dumps(document | {"sequenceNumber": sequence_number, "ownerLevel": level} | other)


def test_data_is_exported_and_imported(store: Store, url: str, tmp_path: Path) -> None:
    kept = Checkpoint(GROUP, "0", 10, 3, "ten", {"file": "é\n7"})
    store.update_checkpoints([kept, Checkpoint(GROUP, "1", 10, 3)])
    out = done("export", url, *NAMED)
    assert [json.loads(one).get("data") for one in out.splitlines()] == [{"file": "é\n7"}, None]
    copy = f"sqlite:///{tmp_path}/copy.db"
    done("import", copy, "-", given=out)
    assert open_store(copy).list_checkpoints(GROUP)[0] == kept


def test_enqueued_times_are_exported_and_imported(store: Store, url: str, tmp_path: Path) -> None:
    kept = Checkpoint(GROUP, "0", 10, 3, "ten", {"file": "7"}, 1_795_395_089.25)
    store.update_checkpoints([kept, Checkpoint(GROUP, "1", 10, 3)])
    out = done("export", url, *NAMED)
    assert [json.loads(one).get("enqueuedTime") for one in out.splitlines()] == [1_795_395_089.25, None]
    copy = f"sqlite:///{tmp_path}/copy.db"
    done("import", copy, "-", given=out)
    assert open_store(copy).list_checkpoints(GROUP)[0] == kept
    for wrong in ("soon", True, float("inf")):
        assert "enqueuedTime is a number of seconds" in refused("import", copy, "-", given=line(enqueuedTime=wrong))


@pytest.mark.parametrize("data", [{"a": 1}, "text", {"a": "x" * 1_100}, ["a"]])
def test_data_that_cannot_be_kept_is_not_imported(store: Store, url: str, data: object) -> None:
    assert "data is" in refused("import", url, "-", given=line(data=data))
    assert written(store) == {}


def test_each_command_and_option_has_help_and_an_example() -> None:
    for name, command in checkpoints.commands.items():
        assert f"leasehold checkpoints {name}" in (command.help or "").partition("Example")[2]
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert [one.name for one in options if not one.help] == []


# Out of a store, and into one


def test_what_goes_out_comes_in_as_it_was(tmp_path: Path, url: str, store: Store) -> None:
    numbers = [Checkpoint(GROUP, str(p), 100 + p, p, str(p)) for p in (10, 9, 0)]
    others = [Checkpoint(GROUP, "é 😀\n", BEFORE_FIRST, 0), Checkpoint(GROUP, "name", 2**63 - 1, 2**63 - 1, "")]
    store.update_checkpoints([*numbers, *others, Checkpoint(OTHER, "0", 1, 1)])
    out = done("export", url, *NAMED)
    assert [json.loads(one)["partition"] for one in out.splitlines()] == ["0", "9", "10", "name", "é 😀\n"]
    file = tmp_path / "out.jsonl"
    file.write_text(out, encoding="utf-8")
    copy = f"sqlite:///{tmp_path}/copy.db"
    done("import", copy, str(file))
    assert written(open_store(copy)) == written(store)
    assert written(open_store(copy), OTHER) == {}
    done("import", copy, str(file))
    assert done("export", copy, *NAMED) == out


def test_partitions_by_any_name_are_listed(url: str, store: Store) -> None:
    names = ["0", "2", "10", "9" * 5000, "a"]
    done("import", url, "-", given="\n".join(line(name) for name in reversed(names)))
    exported = [json.loads(text)["partition"] for text in done("export", url, *NAMED).splitlines()]
    assert exported == names


def test_into_another_group(url: str, store: Store) -> None:
    said = done("import", url, "-", "--group", "a/b/c", "--json", given=f"{line()}\n\n{line('1', 4, 1)}\n")
    document: dict[str, Any] = json.loads(said)
    assert document["groups"] == ["a/b/c"]
    assert document["partitions"][0] == {"partition": "0", "before": None, "after": 10, "ownerLevel": 3}
    assert set(written(store, ConsumerGroup("a", "b", "c"))) == {"0", "1"}
    assert written(store) == {}


def test_a_folder_with_a_document_a_file(tmp_path: Path, url: str, store: Store) -> None:
    folder = tmp_path / "blobs"
    (folder / "deeper").mkdir(parents=True)
    (folder / "0").write_text(json.dumps(json.loads(line("0")), indent=2))
    (folder / "deeper" / "1").write_text(line("1"))
    done("import", url, str(folder))
    assert set(written(store)) == {"0", "1"}


def test_a_pipeline_file_and_a_hub_name_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    LogHub.create(tmp_path / "flights.db", partitions=2).close()
    (tmp_path / "flights.toml").write_text(PIPELINE)
    LogHub(tmp_path / "flights.db").send(numbered(50), partition="0")
    CliRunner().invoke(app, ["init", "sqlite:///stores.db"])
    done("set", "flights.toml", "0", "41")
    [one] = done("export", "flights.toml").splitlines()
    assert json.loads(one)["sequenceNumber"] == 41
    assert done("export", "sqlite:///stores.db", "--hub", "log:///flights.db").splitlines() == [one]
    assert done("export", "sqlite:///stores.db", "--hub", "log:///flights.db", "--consumer-group", "x") == ""


PIPELINE = """

name = "flights"
[source]
hub = "log:///flights.db"
[ownership]
store = "sqlite:///stores.db"
[sink]
url = "sqlite:///table.db"
table = "flights"
mode = "upsert"
keys = ["id"]
[transform]
schema = "id STRING"
"""


# What is refused


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (line(sequence_number=11, level=2), "owner level 2 is below 3"),
        (line(sequence_number=9, level=3), "sequence number 9 is behind 10"),
        (line(sequence_number=9, level=4), "sequence number 9 is behind 10"),
    ],
)
def test_a_lower_level_and_a_step_back_are_refused_unless_forced(url: str, store: Store, wanted: str, why: str) -> None:
    store.update_checkpoints([Checkpoint(GROUP, "0", 10, 3, "ten")])
    both = f"{line('1')}\n{wanted}\n"
    said = refused("import", url, "-", given=both)
    assert said.startswith("leasehold: 1 of 2 checkpoints are refused, and nothing was written")
    assert f"partition 0 of {GROUP}: {why}" in said
    assert "--force" in said
    assert written(store) == {"0": (10, 3, "ten")}
    done("import", url, "-", "--force", given=both)
    assert written(store) == {"0": (json.loads(wanted)["sequenceNumber"], 4, None), "1": (10, 3, None)}
    assert store.update_checkpoints([Checkpoint(GROUP, "0", 12, 3)]) != [], "whoever runs at the old level is fenced"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "-: there is no checkpoint in it"),
        ("{", r"line 1 of the input: not a checkpoint in the format leasehold: Expecting"),
        ("[]", "not a JSON object"),
        (f"{line()}\n{{}}", "line 2 of the input: .*namespace is missing"),
        (line(partition=""), "partition is missing"),
        (line(hub=7), "hub is text, and not 7"),
        (line(sequence_number=None), "sequenceNumber is missing"),
        (line(sequence_number="10"), "sequenceNumber is a whole number from -1, and not '10'"),
        (line(sequence_number=-2), "from -1, and not -2"),
        (line(sequence_number=2**63), "from -1"),
        (line(level=True), "ownerLevel is a whole number from 0, and not True"),
        (line("\ud800"), "partition is text that can be written as UTF-8"),
        (line(offset="\udfff"), "offset is text that can be written as UTF-8"),
        ("[" * 100_000, "line 1 of the input: not a checkpoint .* recursion"),
        (line(level=1.5), "ownerLevel"),
        (line(offset=7), "offset is text or null"),
        (
            f"{line()}\n{line('1')}\n{line()}",
            "line 3 of the input: partition 0 of .* is in line 1 of the input already",
        ),
        ("\n".join([line("0\n1")] * 2), r"line 2 of the input: partition 0\\n1 of .* is in line 1 of the input"),
        (line(hub=["x" * 100_000]), r"hub is text, and not \['x{1900,2000}…\n"),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_its_place(url: str, store: Store, given: str, why: str) -> None:
    said = refused("import", url, "-", given=given)
    assert re.search(why, said), said
    assert written(store) == {}


def test_sources_that_cannot_be_read(tmp_path: Path, url: str) -> None:
    assert "no such file" in refused("import", url, f"{tmp_path}/missing.jsonl").lower()
    (tmp_path / "latin").write_bytes(b'{"a": "\xe9"}')
    assert "not text in UTF-8" in refused("import", url, f"{tmp_path}/latin")


def test_groups_that_are_not_named(url: str, store: Store) -> None:
    assert written(store) == {}
    assert "Add --hub or --group" in refused("export", url)
    assert "Add --hub or --group" in refused("set", url, "0", "1")
    assert "NAMESPACE/HUB/NAME" in refused("export", url, "--group", "hub/name")
    assert "Use one of the two" in refused("export", url, *NAMED, "--hub", "log:///x.db")
    assert "one of leasehold" in refused("import", url, "-", "--format", "x")


# What the hub has


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogHub:
    """A pipeline file in the working directory; its hub has two partitions and 50 events in the first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flights.toml").write_text(PIPELINE)
    CliRunner().invoke(app, ["init", "sqlite:///stores.db"])
    hub = LogHub.create(tmp_path / "flights.db", partitions=2)
    for first in range(0, 50, 10):
        hub.send(numbered(10, first=first), partition="0")
    return hub


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("2", "0"), "the hub has no such partition; it has 0, 1"),
        (("zero", "0"), "the hub has no such partition; it has 0, 1"),
        (("0", "50"), "sequence number 50 is beyond what the hub has; its events are 0 to 49"),
        (("1", "0"), "sequence number 0 is beyond what the hub has; it is empty"),
    ],
)
@pytest.mark.parametrize("named", [("flights.toml",), ("sqlite:///stores.db", "--hub", "log:///flights.db")])
def test_a_place_that_the_hub_does_not_have_is_refused(
    flights: LogHub, named: tuple[str, ...], words: tuple[str, str], why: str
) -> None:
    for force in ((), ("--force",)):
        said = refused("set", *named, *words, *force)
        assert why in said
        assert "--force" not in said
    exported = run("export", *named)
    assert (exported.exit_code, exported.stdout) == (0, "")
    assert "no checkpoints of consumer group" in exported.stderr


def test_the_ends_of_a_partition_are_places(flights: LogHub) -> None:
    done("set", "flights.toml", "0", "49")
    done("set", "flights.toml", "--force", "--", "0", "-1")
    done("set", "flights.toml", "--", "1", "-1")


def test_a_place_before_the_begin_is_forced_only(flights: LogHub) -> None:
    flights.retain(max_bytes=0)
    flights.send(numbered(5), partition="0")
    assert "the first that is left is 50, which is what follows 49" in refused("set", "flights.toml", "0", "20")
    done("set", "flights.toml", "0", "20", "--force")
    done("set", "flights.toml", "0", "49")


def test_an_import_is_held_against_the_hub_that_is_named(flights: LogHub) -> None:
    both = f"{line('1', -1)}\n{line('7')}\n"
    said = refused("import", "flights.toml", "-", given=both)
    assert "1 of 2 checkpoints are refused" in said
    assert "partition 7" in said
    assert "it has 0, 1" in said
    done("import", "sqlite:///stores.db", "-", given=both)  # of a hub that nobody has named


def test_a_group_of_another_pipeline_is_refused_where_a_file_names_it(flights: LogHub) -> None:
    store, group = open_store("sqlite:///stores.db"), flights.consumer_group("$Default")
    store.bind_pipeline(group, PipelineBinding("another", "sink"))
    for words in (("import", "flights.toml", "-"), ("set", "flights.toml", "0", "5")):
        said = refused(*words, "--force", given=line("0", 5))
        assert "belongs to pipeline 'another', and this is 'flights'" in said
        assert "leasehold reset flights.toml" in said
    assert written(store, group) == {}
    store.rebind_pipeline(group, PipelineBinding("flights", "sink"))
    done("set", "flights.toml", "0", "5")
    done("set", "sqlite:///stores.db", "0", "6", "--hub", "log:///flights.db")
    assert written(store, group)["0"][0] == 6


# A store that is not there


@pytest.mark.parametrize("words", [("export",), ("set", "0", "1")])
def test_a_mistyped_store_is_refused_and_not_made(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "empty").touch()
    for name in ("typo.db", "no/folder.db", "empty"):
        said = refused(words[0], f"sqlite:///{tmp_path}/{name}", *words[1:], *NAMED)
        assert "there is no store at sqlite:///" in said
        assert "leasehold init" in said
    assert [(one.name, one.stat().st_size) for one in tmp_path.iterdir()] == [("empty", 0)]


def test_a_store_that_cannot_be_looked_at_is_said(tmp_path: Path) -> None:
    said = refused("export", f"sqlite:///{tmp_path}/{'x' * 300}.db", *NAMED, "--wait", "0")
    assert "File name too long (check its name" in said
    assert "foreseen" not in said


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write what nobody may")
def test_a_file_that_may_not_be_written_is_said(tmp_path: Path, url: str, store: Store) -> None:
    (tmp_path / "store.db").chmod(0o444)
    tmp_path.chmod(0o555)
    assert "check that this user may write it and its folder" in refused("export", url, *NAMED)
    tmp_path.chmod(0o000)
    assert "who may read its folder" in refused("export", url, *NAMED)
    tmp_path.chmod(0o755)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody may make a file")
def test_a_file_that_cannot_be_made_is_not_called_missing() -> None:
    result = CliRunner().invoke(app, ["init", "sqlite:////proc/self/store.db"])
    assert result.exit_code == 1
    assert "it cannot be made: check that this user may write its folder" in result.stderr


@pytest.mark.parametrize("words", [("export",), ("set", "0", "1"), ("import", "-")])
def test_a_store_in_memory_is_no_commands(words: tuple[str, ...]) -> None:
    assert "lives in one process" in refused(words[0], "memory://typo", *words[1:], *NAMED)


# set


def test_set_raises_the_level_and_refuses_a_step_back_unless_forced(url: str, store: Store) -> None:
    done("set", url, *NAMED, "0", "10", "--offset", "ten")
    assert written(store) == {"0": (10, 0, "ten")}
    said = done("set", url, *NAMED, "0", "12")
    assert "1 checkpoint written for tests.example/hub/$Default" in said
    assert written(store) == {"0": (12, 1, None)}
    assert "sequence number 7 is behind 12" in refused("set", url, *NAMED, "0", "7")
    done("set", url, *NAMED, "--force", "--", "0", "-1")
    assert written(store)["0"][0] == BEFORE_FIRST
    assert store.update_checkpoints([Checkpoint(GROUP, "0", 12, 1)]) != []
    for beyond in ("-2", str(2**63)):
        result = run("set", url, *NAMED, "--", "0", beyond)
        assert result.exit_code == 2
        assert "is not in the range" in result.stderr


def test_one_partition_is_set_and_no_other(url: str, store: Store) -> None:
    store.update_checkpoints([Checkpoint(GROUP, p, 10, 3) for p in ("0", "1")])
    done("set", url, *NAMED, "1", "11")
    assert written(store) == {"0": (10, 3, None), "1": (11, 4, None)}


def test_where_no_owner_level_is_left_nothing_is_set(url: str, store: Store) -> None:
    done("import", url, "-", given=line(level=2**63 - 1))
    for words in (("set", url, *NAMED, "0", "11"), ("set", url, *NAMED, "0", "1", "--force")):
        assert "the highest owner level" in refused(*words)
    assert written(store)["0"][:2] == (10, 2**63 - 1)


def test_an_instance_that_overtakes_is_said(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the write, the partition is claimed at a higher level."""

    def late(stored: list[Checkpoint], wanted: list[Checkpoint], *, force: bool, hub: None) -> list[object]:
        moves = plan_moves(stored, wanted, force=force, hub=hub)
        store.raise_owner_level([Checkpoint(GROUP, "0", 0, 9)])
        return list(moves)

    monkeypatch.setattr("leasehold.cli.checkpoints.moves.plan_moves", late)
    said = refused("set", url, *NAMED, "0", "10")
    assert "overtaken by an instance that is running" in said
    assert "level 9 has claimed the partition" in said


# Formats of others


def test_a_format_is_a_parser_of_one_document(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(document: Document, group: ConsumerGroup | None) -> Checkpoint:
        if group is None:
            raise ValueError("it names no group: add --group")
        return Checkpoint(group, text(document, "PartitionId"), number(document, "SequenceNumber", least=0), 0)

    monkeypatch.setitem(checkpoint_formats.FORMATS, "blobs", parse)
    blob = json.dumps({"PartitionId": "3", "SequenceNumber": 17})
    assert "names no group: add --group" in refused("import", url, "-", "--format", "blobs", given=blob)
    done("import", url, "-", "--format", "blobs", *NAMED, given=blob)
    assert written(store) == {"3": (17, 0, None)}
