"""Values of a pipeline file from the environment and from `--set`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.errors import ConfigError
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.pipeline_file import PipelineFile, read_pipeline_file
from leasehold.pipeline_values import parse_settings
from tests.spark.pipeline_text import WHOLE

STORE = 'store = "sqlite:///leasehold.db"'


def read(tmp_path: Path, text: str = WHOLE, environment: dict[str, str] | None = None, **settings: str) -> PipelineFile:
    path = tmp_path / "flights.toml"
    path.write_text(text)
    return read_pipeline_file(
        path, settings={key.replace("__", "."): value for key, value in settings.items()}, environment=environment or {}
    )


# Variables


def test_variables_stand_in_values(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("s3%23cret\n")
    text = WHOLE.replace(STORE, 'store = "redis://:${REDIS_WORD}@${REDIS_HOST}/0"')
    text = text.replace('"id STRING, delay DOUBLE"', "\"id STRING COMMENT '$${id} ${not} $5 ${REDIS_HOST}'\"")
    text = text.replace("${not}", "$not").replace('keys = ["id"]', 'keys = ["${KEY}"]')
    text += '"spark.ssl.keyPassword" = "${KEY}${KEY}"\n'
    environment = {"REDIS_WORD_FILE": str(tmp_path / "word"), "REDIS_HOST": "r.example", "KEY": "${id}"}
    file = read(tmp_path, text, environment)
    assert file.ownership_url == "redis://:s3%23cret@r.example/0"
    assert file.transform.schema == "id STRING COMMENT '${id} $not $5 r.example'"
    assert file.sink.keys == ("${id}",), "what a variable holds is not looked through again"
    assert file.spark["spark.ssl.keyPassword"] == "${id}${id}"
    assert "s3%23cret" not in repr(file)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "${NOT_SET}",
            r"flights.toml: sink.table: the environment variable NOT_SET is not set. Set NOT_SET or NOT_SET_F",
        ),
        ("${spark.x}", r"flights.toml: sink.table: \$\{ begins the name of .* Write \$\$\{"),
        ("${}", r"flights.toml: sink.table: \$\{ begins"),
        ("${OPEN", r"flights.toml: sink.table: \$\{ begins"),
    ],
)
def test_a_variable_that_is_none_is_refused_by_its_key(tmp_path: Path, written: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, WHOLE.replace('table = "flights"', f'table = "{written}"'))


@pytest.mark.more(but=38)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sqlite:///entities.db", "${V}"),
        ("sqlite:///entities.db", "${V}://x"),
        ("log:///hubs/flights.db", "log://${V}"),
        (STORE, 'store = "redis://h?cluster=${V}"\nstrategy = "${V}"'),
        (STORE, 'store = "postgresql:${V}"'),
        ('"10s"', '"${V}"'),
        ('"earliest"', '"${V}"'),
        ('mode = "upsert"', 'mode = "${V}"'),
        ('mode = "upsert"', 'mode = "upsert"\nkeep = ["hub", "${V}"]'),
        ('name = "flights"', 'name = "${V}"'),
        ("max_events_per_trigger = 50000", 'max_events_per_trigger = "${V}"'),
    ],
)
@pytest.mark.parametrize("value", ["p#ss wört", "q z", "mysql://u:qqz@h.example/d", 'q"\n\\z', "postgresql:u:qqz@h"])
def test_no_message_shows_what_a_variable_holds(tmp_path: Path, old: str, new: str, value: str) -> None:
    text = WHOLE.replace('strategy = "planned"\n', "") if "strategy" in new else WHOLE
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text.replace(old, new), {"V": value})
    said = str(refused.value)
    assert "flights.toml" in said
    for part in (value, "p#ss", "qqz", repr(value)[1:-1], "h.example"):
        assert part not in said


# Settings over the file's


def test_settings_go_over_the_values_of_the_file_with_the_types_of_their_keys(tmp_path: Path) -> None:
    settings = {
        "name": "other",
        "sink.url": "sqlite:///x.db",
        "sink.keys": "id, day",
        "sink.keep": '["hub", "partition"]',
        "source.max_events_per_trigger": "7",
        "source.fail_on_data_loss": "false",
        "source.starting_position": '{"0": 5}',
        "source.consumer_group": "17",
        "ownership.capacity": "2",
        "ownership.partition_expiration": "20s",
        "transform.schema": "day STRING",
        "spark.spark.ui.enabled": "false",
        "spark.master": "local[1]",
    }
    path = tmp_path / "flights.toml"
    path.write_text(WHOLE)
    file = read_pipeline_file(path, settings=settings, environment={})
    assert (file.name, file.sink_url) == ("other", f"sqlite:///{tmp_path}/x.db")
    assert (file.sink.keys, file.sink.keep) == (("id", "day"), ("hub", "partition"))
    assert (file.loop_options()["max_events_per_trigger"], file.source.fail_on_data_loss) == (7, False)
    assert (file.source.starting_position, file.source.consumer_group) == ('{"0": 5}', "17")
    assert file.ownership.settings().capacity == 2
    assert file.ownership.settings().partition_expiration == 20.0
    assert file.transform.schema == "day STRING"
    assert file.spark["spark.ui.enabled"] == "false"
    assert file.spark["master"] == "local[1]"
    assert file.spark["spark.sql.shuffle.partitions"] == "4", "what is not set stays"


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("sink.url", "mysql://u:hidden@h/d", r"^--set sink.url = 'mysql://\*\*\*@h/d': a URL that begins with one of"),
        ("sink.urk", "x", r"flights.toml: --set sink.urk: is not a key of a pipeline file. Did you mean url"),
        ("sunk.url", "x", r"flights.toml: --set sunk: is not a key of a pipeline file"),
        ("source.max_events_per_trigger", "many", "--set source.max_events_per_trigger: must be a whole number"),
        ("source.fail_on_data_loss", "yes", "--set source.fail_on_data_loss: must be true or false"),
        ("ownership.partition_expiration", "5s", r"^--set ownership.partition_expiration = 5.0: at least"),
        ("ownership.margin", "5", "--set ownership.margin: '5' is not of the form"),
        ("sink.keys", '["id"', r"--set sink.keys: must be|--set sink.keys: .* is no list"),
        ("sink.table", "${NOT_SET}", r"^--set sink.table: the environment variable NOT_SET is not set"),
        ("source.starting_position", "soon", r"^--set source.starting_position = 'soon': a position is"),
        ("name.x", "y", r"^--set name.x: name is no section"),
    ],
)
def test_what_is_refused_names_the_flag(tmp_path: Path, key: str, text: str, said: str) -> None:
    path = tmp_path / "flights.toml"
    path.write_text(WHOLE)
    with pytest.raises(ConfigError, match=said) as refused:
        read_pipeline_file(path, settings={key: text}, environment={})
    assert "hidden" not in str(refused.value)


def test_a_setting_is_a_key_and_a_value_once() -> None:
    assert parse_settings(("a.b=c=d", "spark.spark.x=")) == {"a.b": "c=d", "spark.spark.x": ""}
    for stated in (("sink.url",), ("=x",), ("a b=hidden",), ("sqlite:///x?password=hidden",)):
        with pytest.raises(ConfigError, match="a setting is KEY=VALUE") as refused:
            parse_settings(stated)
        assert "hidden" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"--set a\.b: is given twice"):
        parse_settings(("a.b=hidden", "a.b=2"))


@pytest.mark.parametrize(
    "command",
    [["status"], ["reset", "--to", "earliest"], ["run"], ["checkpoints", "export"], ["checkpoints", "set", "0", "1"]],
)
def test_each_command_with_a_pipeline_file_takes_settings(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "flights.toml").write_text(WHOLE)
    words = [*command[: 2 if command[0] == "checkpoints" else 1], str(tmp_path / "flights.toml")]
    rest = command[2 if command[0] == "checkpoints" else 1 :]
    said = CliRunner().invoke(app, [*words, *rest, "--set", "ownership.margin=hidden"])
    assert said.exit_code == 1
    assert "--set ownership.margin" in said.stderr


def test_a_command_works_with_what_was_set(tmp_path: Path) -> None:
    (tmp_path / "flights.toml").write_text(WHOLE.replace("log:///hubs/flights.db", "log:///nowhere.db"))
    LogHub.create(tmp_path / "there.db", partitions=1).send([Event(b"{}")])
    where = ["--set", "source.hub=log:///${NAME}.db"]
    runner = CliRunner(env={"NAME": "there"})
    done = runner.invoke(app, ["reset", str(tmp_path / "flights.toml"), "--to", "latest", *where])
    assert done.exit_code == 0, done.stderr
    shown = runner.invoke(app, ["status", str(tmp_path / "flights.toml"), *where, "--json"])
    assert '"lag": 0' in shown.stdout, shown.stderr


@pytest.mark.more
def test_a_url_in_the_place_of_a_file_is_not_repeated() -> None:
    for command in (["status"], ["run"], ["checkpoints", "export"]):
        said = CliRunner().invoke(app, [*command, "postgresql:u:hidden@h/db"])
        assert said.exit_code == 1
        assert "hidden" not in said.stderr + said.stdout
