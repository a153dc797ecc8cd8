"""`EntityTable` on every PySpark: its own tests, a kill between the table's commit and Spark's, a deleted folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leasehold.spark.session.versions import OLDEST
from tests.repository import ROOT
from tests.versions.conftest import Interpreter
from tests.versions.environments import BESIDE
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("versions")  # of two workers, one would wait while the other makes an environment
PROGRAM = Path(__file__).with_name("table_program.py")
FILES, EACH = 6, 50


def test_the_tests_of_the_table_pass(interpreter: Interpreter) -> None:
    # PySpark below 4.2 leaves sockets to the garbage collector, and warns of its own use of pandas.
    quiet = ("-p", "no:cacheprovider", "-W", "ignore")
    done = interpreter.run(
        "-m", "pytest", "-q", *quiet, "tests/spark/test_versions.py", "tests/spark/test_entity_table.py"
    )
    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 50


def test_installing_leasehold_leaves_the_spark_that_is_there_alone(interpreter: Interpreter) -> None:
    pip = ("-m", "pip", "install", "--dry-run", "--disable-pip-version-check")
    for words in ((str(ROOT), *BESIDE), (f"{ROOT}[spark]",)):
        done = interpreter.run(*pip, *words)
        assert done.returncode == 0, done.stderr
        assert not re.search(r"Would install .*pyspark", done.stdout), done.stdout


def test_the_table_is_exact_through_a_kill_and_a_deleted_folder(interpreter: Interpreter, tmp_path: Path) -> None:
    expected: dict[str, int] = {}
    (tmp_path / "events").mkdir()
    for number in range(FILES):
        rows = [
            {
                "id": f"{partition}-{place % 7}",
                "n": number * EACH + place,
                "hub": "h",
                "partition": str(partition),
                "sequenceNumber": number * EACH + place,
                "ownerLevel": 1,
            }
            for partition in range(2)
            for place in range(EACH)
        ]
        file = tmp_path / "events" / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows), file)
        os.utime(
            file, (1_700_000_000 + number, 1_700_000_000 + number)
        )  # Spark reads files in the order of their times
        expected.update({str(row["id"]): int(row["n"]) for row in rows})  # type: ignore[call-overload]
    expected = {key: n for key, n in expected.items() if n % 10 != 3}

    (tmp_path / "slow").touch()
    log = (tmp_path / "killed.log").open("wb")
    killed = subprocess.Popen(
        [interpreter.path, PROGRAM, tmp_path, "checkpoint"],
        env=interpreter.environment(),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        until(lambda: _watermark(tmp_path) is not None or killed.poll() is not None, "the first batch")
        assert killed.poll() is None, (tmp_path / "killed.log").read_text()
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        log.close()
    assert _watermark(tmp_path) == EACH - 1
    (tmp_path / "slow").unlink()

    assert _finish(interpreter, tmp_path) == ((FILES - 1) * 2 * EACH, 2 * EACH)
    assert _rows(tmp_path) == expected
    shutil.rmtree(tmp_path / "checkpoint")
    assert _finish(interpreter, tmp_path) == (0, FILES * 2 * EACH)
    assert _rows(tmp_path) == expected


def test_the_source_is_refused_by_name_where_it_cannot_work(interpreter: Interpreter, tmp_path: Path) -> None:
    program = (
        "from leasehold.spark import open_session, register\n"
        "spark = open_session('x', {}, 'local[1]')\n"
        "for use in (lambda: register(spark), lambda: spark.read.format('leasehold').load()):\n"
        "    try: use()\n"
        "    except Exception as error: print('raised', ' '.join(str(error).split()))\n"
        "spark.stop()\n"
    )
    done = interpreter.run("-c", program, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    raised = [line for line in done.stdout.splitlines() if line.startswith("raised")]
    if interpreter.spark >= (4, 2):
        (missing,) = raised
        assert "hub: is missing" in missing
    else:
        registered, read = raised
        assert "needs PySpark 4.2 or newer" in registered
        assert "MicroBatches" in registered
        # Spark 3.5 looks for no source in Python, and can only say that there is none of that name.
        assert ("MicroBatches" if interpreter.spark > OLDEST else "leasehold") in read


def _watermark(folder: Path) -> object:
    with closing(sqlite3.connect(folder / "table.db")) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'leasehold_watermark'").fetchall():
            return None
        return connection.execute("SELECT max(sequence_number) FROM leasehold_watermark").fetchone()[0]


def _rows(folder: Path) -> dict[str, int]:
    with closing(sqlite3.connect(folder / "table.db")) as connection:
        return dict(connection.execute("SELECT id, n FROM entities").fetchall())


def _finish(interpreter: Interpreter, folder: Path) -> tuple[int, int]:
    done = interpreter.run(PROGRAM, folder, "checkpoint", "--available-now")
    assert done.returncode == 0, done.stderr[-3000:]
    applied, replayed = done.stdout.split()[-2:]
    return int(applied), int(replayed)
