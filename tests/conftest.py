"""What holds for all tests: where their files are, their order, Ctrl-C, and processes and Javas that start quickly."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests import class_archive, temporary_folder

temporary_folder.settle()

# A process that a test starts would compile the whole package anew, and each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

for _name, _value in class_archive.options().items():
    os.environ.setdefault(_name, _value)

# Under `make cover`: a worker that Spark keeps for the next task ends by a signal, and would not say what it ran.
_WORKERS_END = "-Dspark.python.worker.reuse=false"
_submit = os.environ.get("SPARK_SUBMIT_OPTS", "")
if "COVERAGE_PROCESS_CONFIG" in os.environ and _WORKERS_END not in _submit:
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_submit} {_WORKERS_END}".strip()

# A shell that runs something in the background has it ignore Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after --random-order, whose order of files and tests is kept as far as turns go
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests start Javas take turns with those that mostly wait: neither kind gets all workers at once."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    busy = [file for file in files if {"faults", "spark"} & set(file.parts)]
    rest = [file for file in files if file not in busy]
    turns = [(place / len(kind), file) for kind in (busy, rest) for place, file in enumerate(kind)]
    items[:] = [item for _, file in sorted(turns) for item in files[file]]
