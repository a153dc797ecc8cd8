"""`leasehold status --watch`: live on a terminal, look after look elsewhere."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from leasehold.cli.output import Result, ResultTable
from leasehold.cli.status import COLUMNS
from leasehold.cli.status_screen import Looked, Screen, bars
from leasehold.operations.progress import GroupProgress
from tests.dashboard.looks import group, row
from tests.dashboard.serving import Place
from tests.waiting import PATIENCE


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    place.send("0", *[b"x"] * 7)
    place.own("0", "blue/1")
    yield place
    place.close()


def command(place: Place, *words: str) -> list[str]:
    return [sys.executable, "-m", "leasehold", "status", str(place.file), "--watch", "100ms", *words]


def test_on_a_terminal_moves_are_shown_as_they_happen(place: Place) -> None:
    ours, its = pty.openpty()
    process = subprocess.Popen(
        command(place), stdin=its, stdout=its, stderr=its, env={**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    )
    os.close(its)
    seen = b""

    def read_until(text: bytes) -> None:
        nonlocal seen
        while text not in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen):
            seen += os.read(ours, 65_536)

    try:
        read_until(b"blue/1")
        read_until(b"no moves yet")
        place.own("1", "green/1\x1b[31m")
        read_until(b"partition 1 claimed by green")
        assert b"\x1b[31mgreen" not in seen
        process.send_signal(signal.SIGINT)
        read_until(b"leasehold: interrupted")
        assert process.wait(PATIENCE) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_elsewhere_each_look_is_a_result(place: Place) -> None:
    process = subprocess.Popen(command(place, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["lag"] == 7
        place.reach("0", 4)
        lags = iter(lambda: json.loads(process.stdout.readline())["lag"], 2)  # type: ignore[union-attr]
        assert set(lags) <= {7}
    finally:
        process.kill()
        process.communicate()


def looked(at: float, progress: GroupProgress, *, set_back: float = 0.0) -> Looked:
    rows = [[r.partition, r.owner, r.owner_level, r.age, r.checkpoint, r.end, r.lag] for r in progress.partitions]
    result = Result("flights: 2 partitions", {}, ResultTable("partitions", COLUMNS, rows))
    return Looked(at - set_back, at, progress, result, 6.0)


def text_of(screen: Screen) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(screen.drawn())
    return console.export_text()


def test_what_is_on_the_screen() -> None:
    screen = Screen()
    assert "looking" in text_of(screen)
    screen.error = "the store is \x1b[31m away"
    assert "the store is \\x1b[31m away" in text_of(screen)
    screen.add(looked(10.0, group(row(lag=8), row("1", "b/1", age=5.5, lag=0))))
    screen.add(looked(11.0, group(row(lag=4), row("1", "a/1", lag=0), instances=("a/1",))))
    shown = text_of(screen)
    assert "█▄" in shown
    assert "partition 1 taken over by a from b: b/1 had not renewed for 6 s" in shown
    assert "b left" in shown
    screen.error = "the store is \x1b[31m away"
    said = screen.last
    assert said is not None
    screen.last = replace(said, result=replace(said.result, summary="by \x1b]0;x\x07 green\nand blue"))
    assert "by \\x1b]0;x\\x07 green\nand blue" in text_of(screen)
    assert "known: the store is \\x1b[31m away" in text_of(screen)


def test_names_of_a_megabyte_are_cut_and_what_is_said_of_them_is_not() -> None:
    screen, large = Screen(), f"a{'x' * 1_000_000}/1"
    screen.add(looked(10.0, group(row(owner=large, age=5.5))))
    screen.add(looked(11.0, group(row(owner=f"b{large}"))))
    assert "… had not renewed for 6 s" in text_of(screen).replace("\n", "")
    assert len(text_of(screen)) < 20_000


def test_a_clock_that_is_set_back_makes_no_theft_of_a_take_over() -> None:
    screen = Screen()
    screen.add(looked(10.0, group(row(age=5.5))))
    screen.add(looked(11.0, group(row(owner="b/1")), set_back=3_600.0))
    assert "partition 0 taken over by b from a: a/1 had not renewed for 6 s" in text_of(screen)


@pytest.mark.parametrize(("lags", "highest", "said"), [([0, 1, 4, 8], 8, " ▁▄█"), ([0], 0, " "), ([1], 9_999, "▁")])
def test_lags_as_bars(lags: list[int], highest: int, said: str) -> None:
    make: Callable[[list[int]], deque[int]] = deque
    assert bars(make(lags), highest) == said
