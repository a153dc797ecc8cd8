"""The pipeline file: every key, and every way to get one wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.errors import ConfigError
from leasehold.pipeline_file import PipelineFile, read_pipeline_file
from tests.spark.pipeline_text import WHOLE


def read(tmp_path: Path, text: str) -> PipelineFile:
    path = tmp_path / "flights.toml"
    path.write_text(text)
    return read_pipeline_file(path)


def test_the_file_of_the_documentation(tmp_path: Path) -> None:
    file = read(tmp_path, WHOLE)
    assert file.hub_url == f"log:///{tmp_path}/hubs/flights.db"
    assert file.ownership_url == file.checkpoint_url == f"sqlite:///{tmp_path}/leasehold.db"
    assert file.sink_url == f"sqlite:///{tmp_path}/entities.db"
    assert file.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "true"}
    assert file.ownership.settings().partition_expiration == 10.0
    assert file.loop_options()["load_balancing_interval"] == "2s"
    assert file.table_spec().keys == ("id",)


def test_four_slashes_are_absolute_and_two_stores_may_differ(tmp_path: Path) -> None:
    text = WHOLE.replace("log:///hubs/flights.db", "log:////data/f.db").replace(
        'store = "sqlite:///leasehold.db"',
        'ownership_store = "redis://127.0.0.1/1"\ncheckpoint_store = "sqlite:////c.db"',
    )
    file = read(tmp_path, text)
    assert (file.hub_url, file.ownership_url) == ("log:////data/f.db", "redis://127.0.0.1/1")
    assert file.checkpoint_url == "sqlite:////c.db"


@pytest.mark.parametrize(
    ("position", "option"),
    [
        ('"latest"', "latest"),
        ("17", "17"),
        ('{ 0 = 5, 1 = "latest" }', '{"0": "5", "1": "latest"}'),
        ('"2026-01-31T08:00:00Z"', "2026-01-31T08:00:00Z"),
    ],
)
def test_positions(tmp_path: Path, position: str, option: str) -> None:
    file = read(tmp_path, WHOLE.replace('starting_position = "earliest"', f"starting_position = {position}"))
    assert file.loop_options()["starting_position"] == option


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('hub = "log', 'hug = "log', "source.hub: is missing; source.hug: is not a key .* Did you mean hub?"),
        ('keys = ["id"]', 'keys = ["id"]\nscheme = "id STRING"', "sink.scheme: is not a key of a pipeline file"),
        ('keys = ["id"]', 'keys = ["id"]\nschema = "id STRING"', r"sink.schema: .* It belongs into \[transform\]"),
        ("[source]", "[source]\ntriger_interval = '1s'", "source.triger_interval: .* Did you mean trigger_interval?"),
        ("[sink]", "[sunk]", "sink: is missing"),
        ('"10s"', '"10"', "ownership.partition_expiration: '10' is not of the form"),
        ('"10s"', '"5s"', r"ownership.partition_expiration = 5.0: at least .* = 10 s"),
        ("50000", '"many"', "source.max_events_per_trigger: must be a whole number, without quotes, not .many."),
        ("50000", "0", "source.max_events_per_trigger: must be greater than 0"),
        ('"planned"', '"lazy"', "ownership.strategy = 'lazy': one of planned"),
        ('"earliest"', '"soon"', "source.starting_position = 'soon': a position is"),
        ("log:///hubs", "log://hubs", r"source.hub = .*Did you mean log:///hubs/flights.db"),
        ("log:///hubs", "loc:///hubs", "source.hub.*begins with one of.* log://"),
        ("sqlite:///entities", "mysql:///entities", "sink.url.*one of .*sqlite://.*no backend for mysql"),
        ("sqlite:///leasehold", "sqllite:///leasehold", "ownership.*begins with one of.* sqlite://"),
        (
            'store = "sqlite:///leasehold.db"',
            'store = "memory://x"',
            r"ownership.store = 'memory://x': .* one process.* Name one of sqlite://.*redis://",
        ),
        (
            'store = "sqlite:///leasehold.db"',
            'ownership_store = "redis://r.example/1"\ncheckpoint_store = "sqlite:///c.db"',
            r"ownership.checkpoint_store = 'sqlite:.*do not share these checkpoints.* Name one of postgresql://",
        ),
        (
            '"log:///hubs/flights.db"',
            '"eventhubs://ns.example/flights?fleet=mixed"',
            r"ownership.store = 'sqlite:.* fleet=mixed.* Name one of azblob://, aztable://, or take",
        ),
        ('store = "sqlite:///leasehold.db"', "", "ownership: name a store for both, or"),
        ('keys = ["id"]', "", "sink.keys"),
        ('keys = ["id"]', 'keys = "id"', r'sink.keys: "id" is no list: write it in brackets, for example \["id"\]'),
        ('"10s"', "10", 'ownership.partition_expiration: 10 is no duration: .*for example "10s"'),
        ('"10s"', "nan", 'ownership.partition_expiration: NaN is no duration: .*for example "10s"'),
        ('"10s"', "true", 'ownership.partition_expiration: true is no duration: .*for example "10s"'),
        ('"flights"', "7", 'name: must be text, in quotes: "7", not 7'),
        ("[source]", "sauce = 1\n[source]", "sauce: is not a key"),
        ('"spark.ui.enabled"', "spark.ui.enabled", "spark.spark: must be text, .* put a name with dots in quotes"),
        ('mode = "upsert"', 'mode = "merge"', "sink.mode: must be 'upsert' or 'append'"),
        ("[transform]", '[transform]\npython = "a:b"', "transform: sql and python are both given"),
        ('name = "flights"', 'name = "a b"', "name: 'a b' must be letters"),
        ('name = "flights"', 'name = ".."', r"name: '\.\.' must be letters"),
        ("[source]", "[source", "not valid TOML"),
    ],
)
def test_what_is_refused_names_file_and_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError, match=rf"flights\.toml: .*{said}"):
        read(tmp_path, WHOLE.replace(old, new, 1))


def test_a_file_with_the_mark_of_an_editor_and_one_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "flights.toml"
    path.write_bytes(WHOLE.encode("utf-8-sig"))
    assert read_pipeline_file(path).name == "flights"
    path.write_bytes(WHOLE.encode("utf-16"))
    with pytest.raises(ConfigError, match="saved as UTF-8"):
        read_pipeline_file(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_pipeline_file(tmp_path / "none.toml")
