"""Children that a handler forks: signals are for them what they were before the processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import AS_BEFORE
from tests.handlers.orders import place, rows, send
from tests.processor.plain import log
from tests.repository import ROOT
from tests.waiting import PATIENCE, until

__all__ = ["place"]

PROCESSOR = """
import sys
from leasehold import EventProcessor, OwnershipSettings
from tests.children import told_of_children

def on_events(batch, context):
    print(told_of_children(), flush=True)
    processor.stop()

quick = OwnershipSettings(settle_delay=0)
processor = EventProcessor(f"log:///{sys.argv[1]}", "memory://here", on_events, ownership=quick)
processor.run()
"""


@pytest.mark.more
def test_a_handler_of_a_processor_ends_its_children(tmp_path: Path) -> None:
    log(tmp_path, partitions=1, each=1)
    command = [sys.executable, "-c", PROCESSOR, str(tmp_path / "hub.db")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=PATIENCE)
    assert ended.stdout == f"{AS_BEFORE}\n", ended.stderr


@pytest.mark.more
@pytest.mark.parametrize("timeout", ["", 'handler_timeout = "30m"\n'], ids=["", "with a time-out"])
def test_a_handler_that_leasehold_run_calls_ends_its_children(place: Path, timeout: str) -> None:
    """With a time-out it is called in a process of its own, which a person's signals do not end either."""
    file = (place / "orders.toml").read_text().replace("[ownership]", '[ownership]\nhand_over_timeout = "2h"')
    file = file.replace("some_orders:order", "tests.handlers.forking_handlers:forking")
    (place / "orders.toml").write_text(
        file.replace('total DECIMAL(12,2)"', 'total DECIMAL(12,2), told STRING"') + timeout
    )
    send(place, ("a", 1))
    with subprocess.Popen(
        [sys.executable, "-m", "leasehold", "run", str(place / "orders.toml"), "--no-spark"],
        env=dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}"),
    ) as process:
        try:
            until(lambda: rows(place, "SELECT told FROM orders") == [(AS_BEFORE,)], "what the handler was told")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


OWN = """
import os, signal
from leasehold.signal_handlers import handle

def ours(signum, frame): ...
def program_s(signum, frame): ...

def in_a_child():
    child = os.fork()
    if not child:
        os._exit([signal.SIG_DFL, ours, program_s].index(signal.getsignal(signal.SIGTERM)))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

handle(signal.SIGTERM, ours)
found = [in_a_child()]
handle(signal.SIGTERM, signal.SIG_IGN)
found.append(in_a_child())
signal.signal(signal.SIGTERM, program_s)
found.append(in_a_child())
handle(signal.SIGTERM, ours)
found.append(in_a_child())
handle(signal.SIGTERM, program_s)
found += [in_a_child(), signal.getsignal(signal.SIGTERM) is program_s]
print(found, signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_a_child_has_the_handlers_that_the_program_had_before_or_has_set_since() -> None:
    ended = subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.stdout == "[0, 0, 2, 2, 2, True] set()\n", ended.stderr
