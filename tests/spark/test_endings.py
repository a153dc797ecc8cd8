"""What a program's end leaves unsaid, and what not. Programs as processes are in `tests/faults/test_endings.py`."""

from __future__ import annotations

import select
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.spark import EntityTable, endings
from leasehold.spark.daemon import print_unless_left
from tests.spark.test_micro_batches import Place, plain

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize(("error", "said"), [(BrokenPipeError(32, "left"), False), (ValueError("mine"), True)])
def test_a_worker_whose_reader_has_left_says_nothing(
    capsys: pytest.CaptureFixture[str], error: Exception, said: bool
) -> None:
    try:
        raise error
    except type(error):
        print_unless_left()
    assert ("Traceback" in capsys.readouterr().err) == said


def test_a_handler_of_the_program_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(signum: int, frame: object) -> None: ...

    before = {each: signal.getsignal(each) for each in endings.SIGNALS}
    try:
        for each in endings.SIGNALS:
            signal.signal(each, mine)
        assert endings.take_signals(lambda signum: None) is None
        assert {signal.getsignal(each) for each in endings.SIGNALS} == {mine}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        give_back = endings.take_signals(lambda signum: None)
        assert give_back is not None
        assert signal.getsignal(signal.SIGINT) not in (mine, signal.default_int_handler)
        assert signal.getsignal(signal.SIGTERM) is mine
        give_back()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
        assert endings.take_signals(lambda signum: None) is None, "a person types statements"
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_a_batch_whose_jobs_a_stop_has_cancelled_writes_nothing_and_raises_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(spark, tmp_path)
    place.send(3)
    table: EntityTable = place.table()
    results: list[Any] = []

    slowly = F.udf(lambda number: select.select([], [], [], 5) and number, "bigint")
    with place.batches(stop_timeout=0.5, available_now=False) as batches:
        for batch in batches:
            batches.stop()
            results.append(table.apply(plain(batch.events).withColumn("n", slowly("n")), batch))
    assert [(one.applied, one.rejected) for one in results] == [(0, 0)]
    assert place.checkpoints() == {"0": 0, "1": 0}
