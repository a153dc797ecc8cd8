"""What a program's end leaves unsaid, and what not. Programs as processes are in `tests/faults/test_endings.py`."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.hubs.log.hub import LogHub
from leasehold.spark import EntityTable
from leasehold.spark.session import endings
from leasehold.spark.session.daemon import print_unless_left
from tests.spark.places import Place, plain
from tests.waiting import hang, until


@pytest.mark.parametrize(("error", "said"), [(BrokenPipeError(32, "left"), False), (ValueError("mine"), True)])
def test_a_worker_whose_reader_has_left_says_nothing(
    capsys: pytest.CaptureFixture[str], error: Exception, said: bool
) -> None:
    try:
        raise error
    except type(error):
        print_unless_left()
    assert ("Traceback" in capsys.readouterr().err) == said


@pytest.mark.parametrize(("what", "said"), [("json", True), ("leasehold.spark.stream.data_source", False)])
def test_a_worker_that_plans_the_source_says_nothing_when_spark_has_had_it_idle_for_a_minute(
    tmp_path: Path, what: str, said: bool
) -> None:
    (tmp_path / "pyspark_probe.py").write_text(
        f"import {what}\ndef main(infile, outfile):\n    infile.read()\n    while True:\n"
        "        outfile.write(bytes(100_000)); outfile.flush()\n"
    )
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-m", "pyspark.daemon", "pyspark_probe"],  # as Spark starts it for a source
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, "PYTHON_WORKER_FACTORY_SECRET": "word"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        (port,) = struct.unpack("!i", process.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as spark:
            spark.sendall(struct.pack("!i", 4) + b"word")
            (worker,) = struct.unpack("!i", spark.recv(4, socket.MSG_WAITALL))
        until(lambda: is_gone(worker), "the worker to end")
        process.stdin.close()  # the daemon ends, and tells its workers
        assert ("Traceback" in process.stderr.read().decode()) == said


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


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
        give_back = endings.take_signals(lambda signum: None)
        assert give_back is not None
        signal.signal(signal.SIGINT, mine)
        give_back()
        assert signal.getsignal(signal.SIGINT) is mine, "the program has set it meanwhile"
        signal.signal(signal.SIGINT, signal.default_int_handler)
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
        assert endings.take_signals(lambda signum: None) is None, "a person types statements"
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@pytest.mark.more
def test_a_batch_of_which_tasks_tell_nothing_since_java_ends_too_writes_nothing_and_raises_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(spark, tmp_path)
    place.send(3)
    table = place.table()
    results: list[int] = []
    with place.batches(max_events_per_trigger=2) as batches:
        for batch in batches:
            if results:
                batches.stop()
            else:
                kept = plain(batch.events).cache()  # no task runs for the second batch
            results.append(table.apply(kept, batch).applied)
        kept.unpersist()
    assert results == [2, 0]
    assert len(place.rows()) == 2
    assert place.checkpoints() == {"0": 1, "1": 1}


@pytest.mark.more
def test_a_batch_whose_jobs_a_stop_has_cancelled_writes_nothing_and_raises_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(spark, tmp_path)
    place.send(3)
    table: EntityTable = place.table()
    results: list[Any] = []

    hanging = F.udf(lambda number: hang(), "bigint")
    with place.batches(stop_timeout=0.5, available_now=False) as batches:  # impatient: nothing is to be finished
        for batch in batches:
            batches.stop()
            results.append(table.apply(plain(batch.events).withColumn("n", hanging("n")), batch))
    assert [(one.applied, one.rejected) for one in results] == [(0, 0)]
    assert place.checkpoints() == {"0": 0, "1": 0}


def test_a_read_that_a_stop_has_cancelled_writes_nothing_and_raises_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hub that does not answer the driver, which reads small batches itself once it knows what an event weighs."""
    place = Place(spark, tmp_path)
    place.send(3)
    table: EntityTable = place.table()
    results: list[Any] = []
    answers = threading.Event()

    def silent(*args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        answers.wait()
        yield from ()

    few = {"available_now": False, "max_events_per_trigger": 2}
    with place.batches(stop_timeout=0.5, **few) as batches:  # impatient: the second batch is not to be finished
        for batch in batches:
            if results:
                monkeypatch.setattr(LogHub, "read", silent)
                batches.stop()
            results.append(table.apply(plain(batch.events), batch))
    answers.set()
    assert [one.applied for one in results] == [2, 0]
    assert place.checkpoints() == {"0": 1, "1": 1}


def test_java_leaves_sigterm_to_the_program(spark: SparkSession) -> None:
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    told = dict(line.split(":\t") for line in Path(f"/proc/{java.pid}/status").read_text().splitlines())
    assert int(told["SigIgn"], 16) & 1 << (signal.SIGTERM - 1), "it ignores the signal"
    java.send_signal(signal.SIGTERM)
    assert spark.range(3).count() == 3
