"""Logs as JSON: one record a line whatever is in it, who did it, on which partition and batch, and a stable action."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import SinkError
from leasehold.hubs.log.hub import LogHub
from leasehold.logs import JsonFormatter, about, action_of, at, log_notices, of_error, working_as
from leasehold.model import Event
from leasehold.notices import CheckpointUpdated, Measurement, Notice, Notices, OwnershipLost
from tests.every_notice import ALL
from tests.waiting import PATIENCE

ACTIONS = [
    "ownership-claimed",
    "ownership-lost",
    "ownership-relinquished",
    "hand-over-asked",
    "name-shared",
    "partition-suspected",
    "partitions-unserved",
    "checkpoint-updated",
    "cycle-failed",
    "events-lost",
    "start-delayed",
    "record-skipped",
    "work-stalled",
    "store-called",
    "cycle-begun",
    "cycle-ended",
    "events-received",
    "batch-done",
    "table-applied",
    "batch-retried",
]
"""What people search their log stores for: a name here is never changed."""

PROGRAM = """
import logging, sys
from leasehold import EventProcessor, OwnershipSettings
from leasehold.logs import JsonFormatter

handler = logging.StreamHandler()
handler.setFormatter(JsonFormatter())
logging.basicConfig(level=logging.DEBUG, handlers=[handler])
seen = 0

def on_events(batch, context):
    global seen
    logging.getLogger("mine").info("%d events\\nin two lines", len(batch))
    seen += len(batch)
    if seen == 40:
        raise SystemExit(0)
    context.update_checkpoint(batch[-1])

settings = OwnershipSettings(load_balancing_interval=0.1, partition_expiration=6, settle_delay=0)
EventProcessor(sys.argv[1], sys.argv[2], on_events, name="blue", ownership=settings).run()
"""


def formatted(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    read: dict[str, Any] = json.loads(line, parse_constant=pytest.fail)  # NaN is Python's JSON, and no other's
    return read


def record_of(text: object = "text", *values: object, **more: object) -> logging.LogRecord:
    return logging.getLogger("l").makeRecord("l", logging.WARNING, "f.py", 1, text, values, None, extra=more)


def lines_of(stderr: str) -> list[dict[str, Any]]:
    """Each line that a process wrote, as JSON; another line fails."""
    return [json.loads(line) for line in stderr.splitlines()]


@pytest.mark.parametrize(("notice", "action"), list(zip(ALL, ACTIONS, strict=True)), ids=ACTIONS)
def test_the_action_of_each_kind_of_notice(notice: Notice, action: str, caplog: pytest.LogCaptureFixture) -> None:
    assert action_of(notice) == action_of(type(notice)) == action
    notices = Notices()
    end = log_notices(notices, "blue/1")
    with caplog.at_level(logging.DEBUG, "leasehold.notices"):
        notices.publish(notice)
        end()
        notices.publish(notice)
    [record] = caplog.records
    assert record.levelno == (logging.DEBUG if isinstance(notice, CheckpointUpdated | Measurement) else logging.INFO)
    said = formatted(record)
    assert (said["event.action"], said["leasehold.owner.id"]) == (action, "blue/1")
    assert said.get("leasehold.partition") == getattr(notice, "partition", None)
    if isinstance(notice, OwnershipLost):
        assert said["leasehold.reason"] == "taken by another owner"
        assert said["message"] == "ownership lost: partition 0, owner level 1, reason taken by another owner"
    if hasattr(notice, "error"):
        assert (said["error.type"], said["error.message"]) == ("ValueError", "x")


def test_an_error_of_ours_says_what_it_asks_for() -> None:
    said = formatted(record_of(**of_error(SinkError("no INSERT"))))
    assert (said["error.type"], said["leasehold.verdict"]) == ("SinkError", "mend")
    assert "leasehold.verdict" not in formatted(record_of(**of_error(ValueError("x"))))


def test_each_kind_of_notice_has_an_action_of_its_own() -> None:
    kinds = {
        kind.__name__: kind for base in (Notice, Measurement) for kind in base.__subclasses__()
    }  # a class with slots is there twice
    actions = {action_of(kind) for kind in kinds.values()}
    assert actions >= set(ACTIONS)
    assert len(actions) == len(kinds)


def test_what_others_wrote_is_one_line_and_raises_nothing() -> None:
    assert formatted(record_of("%d", "no number"))["message"].startswith("'%d' with ('no number',)")
    assert formatted(record_of("a\nb\x1b[31m\u202e\ud800"))["message"] == "a\nb\x1b[31m\u202e\ud800"
    assert formatted(record_of(leasehold={"leasehold.odd": object()}))["leasehold.odd"].startswith("<object")
    assert formatted(record_of(leasehold="somebody else's"))["message"] == "text"
    odd = formatted(record_of(leasehold={"leasehold.odd": [math.nan, {"until": -math.inf}, 1.5]}))["leasehold.odd"]
    assert odd == ["nan", {"until": "-inf"}, 1.5]
    loop: list[object] = []
    loop.append(loop)
    assert "no JSON" in formatted(record_of(leasehold={"leasehold.odd": loop}))["message"]


class Mute(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_what_has_no_text_raises_nothing() -> None:
    assert "<Mute without a text: RuntimeError>" in formatted(record_of(leasehold={"leasehold.odd": Mute()})).values()
    assert "cannot be had" in formatted(record_of("%s", Mute()))["message"]
    assert formatted(record_of("partition %s", Mute()))["leasehold.partition"].startswith("<Mute")
    record = record_of()
    record.exc_info = (Mute, Mute(), None)
    assert formatted(record)["error.message"].startswith("<Mute")


def test_whose_record_it_is() -> None:
    assert "leasehold.owner.id" not in formatted(record_of())
    with about(owner="blue/1", partition="0"), about(batch="7"):
        said = formatted(record_of(**at(partition="3")))
    names = ("leasehold.owner.id", "leasehold.partition", "leasehold.batch.id")
    assert [said[name] for name in names] == ["blue/1", "3", "7"]
    assert formatted(record_of("partition %s: lost", "5"))["leasehold.partition"] == "5"
    with working_as("blue/1"):
        told: list[dict[str, Any]] = []
        other = threading.Thread(target=lambda: told.append(formatted(record_of())))
        other.start()
        other.join()
        assert told[0]["leasehold.owner.id"] == "blue/1"  # the only one there is
        with working_as("green/1"):
            assert formatted(record_of())["leasehold.owner.id"] == "green/1"
            another = threading.Thread(target=lambda: told.append(formatted(record_of())))
            another.start()
            another.join()
            assert "leasehold.owner.id" not in told[1]


@pytest.mark.more
def test_a_run_of_the_plain_processor(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=2)
    for partition in hub.partition_ids():
        hub.send([Event(b"x")] * 20, partition=partition)
    urls = [f"log:///{tmp_path}/hub.db", f"sqlite:///{tmp_path}/store.db"]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *urls], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    lines = lines_of(ran.stderr)
    for line in lines:
        assert {"@timestamp", "log.level", "message", "ecs.version", "service.name", "log.logger"} <= line.keys()
    [owner] = {line["leasehold.owner.id"] for line in lines if "leasehold.owner.id" in line}
    assert owner.startswith("blue/")
    actions = [line.get("event.action") for line in lines]
    assert {"ownership-claimed", "checkpoint-updated", "ownership-relinquished"} <= set(actions)
    mine = [line for line in lines if line["log.logger"] == "mine"]
    assert {line["leasehold.partition"] for line in mine} == {"0", "1"}
    for line in mine:
        assert line["leasehold.owner.id"] == owner
        assert line["leasehold.batch.id"].startswith(f"{line['leasehold.partition']}/")


@pytest.mark.more
@pytest.mark.parametrize(
    "words", [["status", "no.toml"], ["checkpoints", "export", "sqlite:///no.db", "--group", "/h/g"]]
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_errors_of_commands(words: list[str], form: str, tmp_path: Path) -> None:
    def called(*more: str, **variables: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "leasehold", *words, *more],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert (ran.returncode, ran.stdout) == (1, "")
        return ran.stderr

    if form == "text":
        assert called().startswith("leasehold: ")
        return
    [line] = lines_of(called("--log-format", "json"))
    assert line["log.level"] == "error"
    assert line["error.type"]
    assert "error.stack_trace" not in line
    [line] = lines_of(called(LEASEHOLD_LOG_FORMAT="json", LEASEHOLD_DEBUG="1"))
    assert "Traceback" in line["error.stack_trace"]
