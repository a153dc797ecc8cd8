"""`leasehold dashboard` over HTTP: a real process, a real log and store, and clients that are not all friends."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import leasehold.dashboard
from leasehold.cli.app import app
from tests.dashboard.serving import Place, Served, serving
from tests.waiting import PATIENCE, until

PAGE = Path(leasehold.dashboard.__file__).parent / "page"
TOKEN = "sixteen letters!"  # noqa: S105 -- of a test
OFTEN = "<script>alert('owner')</script>"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("dashboard"))
    for partition in ("0", "1"):
        place.send(partition, *[b'{"id":"a"}'] * 10)
    place.own("0", "blue/1")
    place.reach("0", 3)
    yield place
    place.close()


@pytest.fixture(scope="module")
def served(place: Place) -> Iterator[Served]:
    with serving(place) as served:
        until(lambda: served.now()[0]["partitions"], "the first look")
        yield served


def test_what_the_page_is_told(served: Served) -> None:
    [shown] = served.now()
    assert (shown["name"], shown["lag"], shown["owned"], shown["error"]) == ("flights", 16, 1, "")
    first, second = shown["partitions"]
    assert (first["owner"], first["alive"], first["checkpoint"], first["lag"]) == ("blue/1", True, 4, 6)
    assert (second["owner"], second["colour"], second["lag"]) == ("", None, 10)
    assert [one["owner"] for one in shown["instances"]] == ["blue/1"]


def test_files_of_the_page_and_the_headers_of_every_answer(served: Served) -> None:
    kinds = {"/": "html", "/page.css": "css", "/page.js": "javascript", "/draw.js": "javascript", "/icon.svg": "svg"}
    for path, kind in {**kinds, "/login": "html", "/now": "json", "/missing": "plain"}.items():
        status, headers, body = served.ask(path)
        assert (status, bool(body)) == (404 if path == "/missing" else 200, True)
        assert kind in headers["content-type"]
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_who_asks_for_the_head_of_the_stream_gets_it_and_no_stream(served: Served) -> None:
    status, headers, body = served.ask("/events", "HEAD")
    assert (status, headers["content-type"].partition(";")[0], body) == (200, "text/event-stream", "")
    assert served.ask("/now", "HEAD")[0] == 200


def test_the_page_needs_no_address_outside_itself_and_makes_no_markup() -> None:
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.", text), file
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|onclick|style=", text), (
            file
        )


def test_strangers_are_refused(served: Served) -> None:
    assert served.ask("/now", Host="evil.example")[0] == 403
    assert served.ask("/now", Sec_Fetch_Site="cross-site")[0] == 403
    assert served.ask("/login", "POST", "token=x", Origin="http://evil.example")[0] == 403
    status, headers, _ = served.ask("/now", Host="evil.example")
    assert (status, "access-control-allow-origin" in headers) == (403, False)
    assert served.ask("/now", "POST", "", Origin=served.url.rstrip("/"))[0] == 405


def test_a_move_is_told_as_it_happens_and_kept(place: Place, served: Served) -> None:
    with served.stream() as told:
        assert next(told)["name"] == "flights"
        place.own("1", OFTEN)
        shown = next(one for one in told if one["partitions"][1]["owner"])
    [move] = [one for one in shown["moves"] if one["kind"] == "claimed"]
    assert (move["partition"], move["owner"]) == ("1", OFTEN)
    status, _, body = served.ask("/history/flights?window=24h")
    past = json.loads(body)
    assert status == 200
    assert "blue/1" in past["owners"]
    assert past["partitions"][0]["0"] == [past["owners"].index("blue/1"), 6]
    assert served.ask("/history/nothing")[0] == served.ask("/history/flights?window=9y")[0] == 404


def test_rejected_rows_are_shown_with_their_bodies(place: Place, served: Served) -> None:
    assert (served.now()[0]["rejected"], served.now()[0]["rejectedRows"]) == (0, [])
    place.reject("1", 0, OFTEN.encode(), "not JSON")
    until(lambda: served.now()[0]["rejectedRows"], "the rejected row")
    [shown] = served.now()
    [row] = shown["rejectedRows"]
    assert row["hub"] == place.hub.identity
    assert shown["rejected"] == 1
    assert {name: row[name] for name in ("partition", "number", "reason", "body")} == {
        "partition": "1",
        "number": 0,
        "reason": "not JSON",
        "body": OFTEN,
    }


def test_parked_events_and_their_next_try_are_shown(place: Place, served: Served) -> None:
    assert (served.now()[0]["parked"], served.now()[0]["parkedEvents"]) == (0, [])
    place.park("1", 3, OFTEN.encode(), "RuntimeError: away", 9e9)
    until(lambda: served.now()[0]["parkedEvents"], "the parked event")
    [shown] = served.now()
    [row] = shown["parkedEvents"]
    assert (shown["parked"], shown["deadLetters"], shown["nextRetry"]) == (1, 0, 9e9)
    assert shown["oldestParked"] == row["parkedAt"]
    assert {name: row[name] for name in ("partition", "number", "key", "reason", "body", "tries", "next", "hub")} == {
        "partition": "1",
        "number": 3,
        "key": "x",
        "reason": "RuntimeError: away",
        "body": OFTEN,
        "tries": 1,
        "next": 9e9,
        "hub": place.hub.identity,
    }


def test_a_hub_that_goes_away_is_told_beside_what_was_known(place: Place, served: Served) -> None:
    hub, moved = place.folder / "hub.db", place.folder / "moved.db"
    hub.rename(moved)
    until(lambda: "hub.db" in served.now()[0]["error"], "the error")
    assert len(served.now()[0]["partitions"]) == 2
    moved.rename(hub)
    until(lambda: not served.now()[0]["error"], "the end of the error")


def test_a_token_is_asked_for_and_does_not_allow_actions(place: Place) -> None:
    with serving(place, LEASEHOLD_DASHBOARD_TOKEN=TOKEN) as served:
        assert [served.ask(path)[0] for path in ("/now", "/events", "/page.js")] == [401, 401, 401]
        status, headers, _ = served.ask("/")
        assert (status, headers["location"]) == (303, "login")
        here = served.url.rstrip("/")
        assert served.ask("/login", "POST", "token=wrong", Origin=here)[0] == 403
        assert served.ask("/login", "POST", f"token={'x' * 10_000}", Origin=here)[0] == 403
        form = f"token={TOKEN.replace(' ', '+')}"
        assert served.ask("/login", "POST", form)[0] == 403  # from nowhere
        status, headers, _ = served.ask("/login", "POST", form, Origin=here)
        cookie = headers["set-cookie"]
        assert (status, headers["location"]) == (303, "./")
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert served.ask("/now", Cookie=cookie.partition(";")[0])[0] == 200
        assert served.ask("/now", Authorization=f"Bearer {TOKEN}")[0] == 200
        assert served.ask("/now", Authorization="Bearer wrong")[0] == 401
        wish = json.dumps({"action": "drop", "hub": place.hub.identity, "events": [["0", 2]], "because": "a test"})
        status, _, said = served.ask("/actions/flights", "POST", wish, Origin=here, Authorization=f"Bearer {TOKEN}")
        assert (status, "--allow-actions" in said) == (403, True)


def test_what_strangers_send_is_no_line_of_the_log(served: Served) -> None:
    """What it has said is looked at when it has ended: see `serving`."""
    assert served.ask("/now", Upgrade="websocket", Connection="Upgrade")[0] == 200
    host, _, port = served.at.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as stranger:
        stranger.sendall(b"\0\1\2 nothing\r\n\r\n")
        assert b"400" in stranger.recv(100)


@pytest.mark.parametrize(
    ("words", "token", "said"),
    [
        (["--listen", "0.0.0.0:0"], "", "no token is set in LEASEHOLD_DASHBOARD_TOKEN"),
        ([], "short", "at least 16 characters"),
        (["--allow-actions"], "", "whoever acts has to have a token"),
        (["--listen", "nowhere"], "", "HOST:PORT"),
        (["--history", "."], "", "leasehold: "),
    ],
)
def test_what_is_refused_at_the_start(words: list[str], token: str, said: str, place: Place) -> None:
    ran = CliRunner(env={"LEASEHOLD_DASHBOARD_TOKEN": token, "XDG_STATE_HOME": str(place.folder / "state")}).invoke(
        app, ["dashboard", str(place.file), "--listen", "127.0.0.1:0", *words]
    )
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert said in ran.stderr
    assert "not an error that was foreseen" not in ran.stderr
