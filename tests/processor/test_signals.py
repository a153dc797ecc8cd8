"""A signal at any moment: a handler that calls `stop`, or Ctrl-C, between any two lines of the main thread.

Each program makes one processor after another, and raises the signal at a later line each time. What would wait for
ever ends the program here, with the traceback of each thread.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processor.plain import log
from tests.waiting import PATIENCE

PROGRAM = """
import faulthandler, signal, sys, threading
from random import Random
from leasehold import EventProcessor, OwnershipSettings

how, hub, first, step = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
patience = float(sys.argv[5])
SETTINGS = OwnershipSettings(load_balancing_interval=0.5, partition_expiration=600, settle_delay=0.0)
# Ctrl-C may make an error of another kind of what it interrupts in the standard library.
OURS = ("leasehold",) if how == "is interrupted" else ("leasehold", "threading.py")


def at_line(number, signum):
    left = number

    def trace(frame, event, argument):
        nonlocal left
        if not any(part in frame.f_code.co_filename for part in OURS):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                print(how, number, frame.f_code.co_filename, frame.f_lineno, file=sys.stderr, flush=True)
                signal.raise_signal(signum)
        return trace

    sys.settrace(trace)
    return lambda: left <= 0


def take_all(processor):
    for client in processor:
        with client:
            for batch in client:
                client.update_checkpoint(batch)


def once(number):
    faulthandler.dump_traceback_later(patience, exit=True)
    handler = None if how == "pulls" else lambda batch, context: None
    processor = EventProcessor(f"log:///{hub}", f"memory://{how}{number}", handler, ownership=SETTINGS)
    signal.signal(signal.SIGUSR1, lambda *_: processor.stop())
    if how in ("stops", "pulls"):
        processor.start()
    later = threading.Timer(0.4, processor.stop, [0])
    raised = at_line(number, signal.SIGINT if how == "is interrupted" else signal.SIGUSR1)
    try:
        if how == "stops":
            processor.stop()
        else:
            later.start()
            take_all(processor) if how == "pulls" else processor.run()
    except KeyboardInterrupt:
        pass  # where it hit nothing of the processor's, or `start` before anything had begun
    finally:
        sys.settrace(None)
    later.cancel()
    processor.stop()
    assert not processor.running
    return raised()


number = first
while once(number):
    number += step
assert number > 5 * step, number
for thread in threading.enumerate():
    if thread is not threading.main_thread() and not thread.daemon:
        thread.join()  # or the traceback is dumped
print("ended")
"""


@pytest.mark.parametrize(("how", "step"), [("stops", 5), ("runs", 19), ("pulls", 31), ("is interrupted", 13)])
def test_a_signal_between_any_two_lines_ends_the_processor(tmp_path: Path, how: str, step: int) -> None:
    log(tmp_path, partitions=1, each=5)
    command = [sys.executable, "-c", PROGRAM, how, str(tmp_path / "hub.db"), "1", str(step), str(PATIENCE)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout == "ended\n", ended.stderr[-3000:]
