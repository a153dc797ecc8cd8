"""What the dashboard does when it is allowed to: with the token alone, and nothing that a request sneaks in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leasehold.dashboard.actions import MOST_EVENTS, Action, Actions, BadRequest
from tests.dashboard.serving import Place, Served, serving
from tests.waiting import PATIENCE, until

TOKEN = "sixteen letters!"  # noqa: S105 -- of a test
GOOD = {"action": "drop", "hub": "h", "events": [["0", 3]], "because": "a test"}


def test_a_request_becomes_options_with_their_values_bound() -> None:
    action = Action.parse(json.dumps({**GOOD, "events": [["--all", 3], ["1", 4]], "because": " --all "}))
    assert action.words() == ["--hub=h", "--event=--all:3", "--event=1:4", "--because=--all"]
    assert Action.parse(json.dumps({**GOOD, "action": "retry"})).words() == ["--hub=h", "--event=0:3"]
    assert (action.of, Action.parse(json.dumps({**GOOD, "of": "parked"})).of) == ("rejected", "parked")


@pytest.mark.parametrize(
    "change",
    [
        {"action": "reset"},
        {"action": ["drop"]},
        {"of": "reset"},
        {"of": None},
        {"hub": ""},
        {"hub": None},
        {"events": []},
        {"events": [["0", 1]] * (MOST_EVENTS + 1)},
        {"events": [["0", True]]},
        {"events": [["0", -1]]},
        {"events": [["0", "1"]]},
        {"events": [[0, 1]]},
        {"events": ["0:1"]},
        {"events": 7},
        {"because": " "},
        {"because": "x" * 501},
        {"because": 7},
        {"because": "\0"},
        {"because": "\ud800"},
        {"hub": "\ud800"},
    ],
)
def test_what_is_no_action_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        Action.parse(json.dumps({**GOOD, **change}))


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", "{", "[" * 50_000])
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        Action.parse(text)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("actions"))
    place.own("0", "blue/1")
    place.send("0", *[b"x"] * 5)
    place.reject("0", 2, b"{", "not JSON")
    place.park("1", 2, b"{}", "RuntimeError: away", 9e9)
    yield place
    place.close()


@pytest.fixture(scope="module")
def served(place: Place) -> Iterator[Served]:
    with serving(place, "--allow-actions", LEASEHOLD_DASHBOARD_TOKEN=TOKEN) as served:
        yield served


KNOWN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.more
def test_an_event_is_dropped_with_the_token_and_left_alone_without(place: Place, served: Served) -> None:
    wish = json.dumps({**GOOD, "hub": place.hub.identity, "events": [["0", 2]]})
    here = served.url.rstrip("/")

    def rejected() -> object:
        return json.loads(served.ask("/now", **KNOWN)[2])[0].get("rejected")

    until(lambda: rejected() == 1, "the rejected row")
    assert json.loads(served.ask("/now", **KNOWN)[2])[0]["actions"] is True
    assert served.ask("/actions/flights", "POST", wish, Origin=here)[0] == 401
    assert served.ask("/actions/flights", "POST", wish, Origin="http://evil.example", **KNOWN)[0] == 403
    assert served.ask("/actions/flights", "POST", wish, **KNOWN)[0] == 403
    assert served.ask("/actions/other", "POST", wish, Origin=here, **KNOWN)[0] == 403
    assert served.ask("/actions/flights", "POST", "x" * 100_000, Origin=here, **KNOWN)[0] == 400
    assert (rejected(), place.dropped()) == (1, [])
    status, _, told = served.ask("/actions/flights", "POST", wish, Origin=here, **KNOWN)
    assert (status, json.loads(told)) == (200, {"result": {"dropped": 1, "left": []}})
    until(lambda: rejected() == 0, "the end of the row")
    [dropped] = place.dropped()
    assert (dropped.event.sequence_number, dropped.dropped_for) == (2, "a test")


@pytest.mark.more
def test_a_parked_event_is_to_be_tried_at_once_by_whoever_has_the_token(place: Place, served: Served) -> None:
    wish = json.dumps({"action": "retry", "of": "parked", "hub": place.hub.identity, "events": [["1", 2]]})
    here = served.url.rstrip("/")
    assert served.ask("/actions/flights", "POST", wish, Origin=here)[0] == 401
    assert [row.event.next_at for row in place.parked()] == [9e9]
    status, _, told = served.ask("/actions/flights", "POST", wish, Origin=here, **KNOWN)
    assert (status, json.loads(told)) == (200, {"result": {"retried": 1, "left": []}})
    assert [row.event.next_at for row in place.parked()] == [0]

    def following() -> float:
        return float(json.loads(served.ask("/now", **KNOWN)[2])[0].get("nextRetry") or 9e9)

    until(lambda: following() < 9e9, "the new time of the next try")


@pytest.fixture
def unread(tmp_path: Path) -> Path:
    """A pipeline file that a command waits for as long as nobody writes it."""
    os.mkfifo(tmp_path / "p.toml")
    return tmp_path / "p.toml"


def test_two_actions_on_a_pipeline_are_not_done_at_once(unread: Path) -> None:
    actions, action = Actions(unread, ()), Action.parse(json.dumps(GOOD))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(actions.act, action)
        writer = -1

        def read() -> bool:
            nonlocal writer
            try:
                writer = os.open(unread, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody reads it yet
                return False
            return True

        until(read, "the command to read its file")
        try:
            code, said = actions.act(action)
            assert (code, said) == (409, {"error": "another action on this pipeline is under way: wait for its end"})
        finally:
            os.write(writer, b"no pipeline file")
            os.close(writer)
        code, said = first.result(PATIENCE)
        assert code == 422
        assert "p.toml" in said["error"]


def test_an_action_that_does_not_end_is_ended_and_the_next_one_is_done(
    unread: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.dashboard.actions.LONGEST", 0.5)
    actions, action = Actions(unread, ()), Action.parse(json.dumps(GOOD))
    for _ in range(2):
        assert actions.act(action) == (504, {"error": "it was not done after 0.5 s, and was ended"})
