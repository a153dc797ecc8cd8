"""Waiting for what is away when something starts: bounded, said once, and only where it can help."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from leasehold.errors import HubError, HubUnavailable, LeaseholdError, StoreUnavailable, Verdict
from leasehold.hubs import open_hub
from leasehold.model import ConsumerGroup
from leasehold.notices import Notices, StartDelayed
from leasehold.processors.events import DeliverySettings, EventProcessor
from leasehold.runtime import Runtime
from leasehold.stores import open_store
from leasehold.waiting import SignalEvent, readable, sentence, when_there
from leasehold_testkit.clock import ManualClock
from tests.many_files import FIRST, many_files
from tests.processor.plain import LeadingClock
from tests.waiting import NEVER


class Away:
    """Something that answers from `back` on; each question takes `takes` seconds."""

    def __init__(self, back: float, error: LeaseholdError, takes: float = 0.0) -> None:
        self.clock = ManualClock(monotonic=0.0)
        self.back, self.error, self.takes = back, error, takes
        self.asked: list[float] = []
        self.said: list[tuple[LeaseholdError, float]] = []

    def ask(self) -> str:
        self.asked.append(self.clock.monotonic())
        self.clock.advance(self.takes)
        if self.clock.monotonic() < self.back:
            raise self.error
        return "here"

    def wait(self, patience: float, pause: Callable[[float], object] | None = None) -> str:
        return when_there(
            self.ask,
            patience=patience,
            say=lambda error, left: self.said.append((error, left)),
            clock=self.clock,
            rng=Random(1),
            pause=pause or self.clock.advance,
        )


def test_what_is_there_is_not_waited_for() -> None:
    away = Away(0.0, HubUnavailable("away"))
    assert away.wait(60.0) == "here"
    assert (away.asked, away.said) == ([0.0], [])


def test_what_comes_back_is_there_soon_after_and_it_was_said_once() -> None:
    away = Away(30.0, HubUnavailable("away"), takes=2.0)
    assert away.wait(60.0) == "here"
    assert 30.0 <= away.clock.monotonic() < 37.0
    assert away.said == [(away.error, 60.0)]
    pauses = [two - one - 2.0 for one, two in zip(away.asked, away.asked[1:], strict=False)]
    assert pauses[0] <= 0.25
    assert all(pause <= 5.0 for pause in pauses)
    assert len(away.asked) < 15, "with pauses that grow"


def test_what_stays_away_is_an_error_after_the_patience() -> None:
    away = Away(1e9, StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable) as raised:
        away.wait(15.0)
    assert raised.value is away.error
    assert away.clock.monotonic() == pytest.approx(15.0)


@pytest.mark.parametrize("error", [HubError("no right"), StoreUnavailable("wrong password", verdict=Verdict.MEND)])
def test_what_waiting_does_not_mend_is_not_waited_for(error: LeaseholdError) -> None:
    away = Away(1.0, error)
    with pytest.raises(type(error)):
        away.wait(60.0)
    assert (away.clock.monotonic(), away.said) == (0.0, [])


def test_who_does_not_want_to_wait_is_told_nothing_of_it() -> None:
    away = Away(1.0, HubUnavailable("away"))
    with pytest.raises(HubUnavailable):
        away.wait(0.0)
    assert (len(away.asked), away.said) == (1, [])


def test_who_is_stopped_while_waiting_waits_no_longer() -> None:
    away = Away(30.0, HubUnavailable("away"))

    def stopped(seconds: float) -> bool:
        away.clock.advance(seconds)
        return away.clock.monotonic() > 5.0

    with pytest.raises(HubUnavailable):
        away.wait(60.0, stopped)
    assert away.clock.monotonic() < 11.0


def test_one_line_is_said() -> None:
    assert sentence(HubUnavailable("a: no\nanswer."), 59.7) == "a: no answer. Waiting for it, 1 minute at most"
    assert sentence(HubUnavailable("a: no answer."), float("inf")) == "a: no answer. Waiting for it, without an end"


def test_a_file_that_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(HubUnavailable) as missing:
        open_hub("log:///missing.db", base=tmp_path)
    assert missing.value.verdict is Verdict.MEND
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable) as bad:
        open_store("sqlite:///file/leasehold.db", base=tmp_path).list_checkpoints(ConsumerGroup("n", "h"))
    assert bad.value.verdict is Verdict.MEND


def test_a_processor_waits_for_its_hub_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices()
    heard: list[StartDelayed] = []
    clock = LeadingClock()
    notices.subscribe(heard.append, StartDelayed)
    notices.subscribe(lambda delayed: clock.advance(NEVER), StartDelayed)
    nobody = "kafka://127.0.0.1:1/topic?request_timeout=0.5s"  # impatient: nobody is there
    with pytest.raises(HubUnavailable):
        EventProcessor(
            nobody,
            "memory://waits",
            print,
            delivery=DeliverySettings(patience=NEVER),
            runtime=Runtime(notices=notices, clock=clock),
        )
    assert [type(one.error) for one in heard] == [HubUnavailable]
    assert "Waiting for it" in caplog.records[-1].message
    assert caplog.records[-1].levelno == logging.WARNING


def test_an_event_of_a_process_with_many_connections_is_waited_for() -> None:
    with many_files():
        lower = []  # what another thread of this process has closed meanwhile
        while (stop := SignalEvent())._read < FIRST:
            lower.append(stop)
        assert not stop.wait(0.0)
        stop.set()
        assert all(stop.wait(timeout) for timeout in (0.0, -1.0, 1e12, float("inf"), None))


def test_what_is_there_to_read_and_an_end_are_seen() -> None:
    mine, its = os.pipe()
    try:
        assert not readable(mine, 0.0)
        os.write(its, b".")
        assert readable(mine, 1e12)
        os.read(mine, 1)
        assert not readable(mine, 0.001)
        os.close(its)
        assert readable(mine, None), "so a reader hears of the end"
    finally:
        os.close(mine)
