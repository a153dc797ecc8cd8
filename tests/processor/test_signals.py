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
from tests.repository import ROOT
from tests.waiting import PATIENCE

PROGRAM = """
import faulthandler, signal, sys, threading
from leasehold import EventProcessor, OwnershipSettings
from leasehold.processors.events.oversight import Oversight
from tests.waiting import until

how, hub, first, step = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
patience = float(sys.argv[5])
EVENTS = 5
WAITS = (threading.Condition.wait.__code__, Oversight.wait.__code__)  # for events, and for the end
pulls = how in ("pulls", "pulls beside a stop")
SETTINGS = OwnershipSettings(load_balancing_interval=0.5, partition_expiration=600, settle_delay=0.0)
# Ctrl-C may make an error of another kind of what it interrupts in the standard library.
OURS = ("leasehold",) if how == "is interrupted" else ("leasehold", "threading.py")


def at_line(number, signum, taken, idle, before):
    # `idle` is set once the main thread has all events and has begun to wait three times: the lines between count, too.
    left, waits = number, 0

    def trace(frame, event, argument):
        nonlocal left, waits
        if event == "call" and frame.f_code in WAITS and len(taken) >= EVENTS:
            waits += "leasehold" in frame.f_back.f_code.co_filename
            if waits == 3:
                idle.set()
        if not any(part in frame.f_code.co_filename for part in OURS):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                before()
                print(how, number, frame.f_code.co_filename, frame.f_lineno, file=sys.stderr, flush=True)
                signal.raise_signal(signum)
        return trace

    sys.settrace(trace)
    return lambda: left <= 0


def take_all(processor, taken):
    for client in processor:
        with client:
            for batch in client:
                client.update_checkpoint(batch)
                taken.extend(batch)


def stop(processor, idle):
    idle.wait()
    processor.stop(0)


def stop_beside(processor):
    # Another thread is in the middle of `stop` when the signal comes.
    threading.Thread(target=processor.stop, args=(0,)).start()
    until(lambda: processor._oversight.stopping, "the other thread to stop", pause=0.001)


def once(number):
    faulthandler.dump_traceback_later(patience, exit=True)
    taken, idle = [], threading.Event()
    handler = None if pulls else lambda batch, context: taken.extend(batch)
    processor = EventProcessor(f"log:///{hub}", f"memory://{how}{number}", handler, ownership=SETTINGS)
    signal.signal(signal.SIGUSR1, lambda *_: processor.stop())
    if how == "stops" or pulls:
        processor.start()
    beside = threading.Thread(target=stop, args=(processor, idle))
    if how != "stops":
        beside.start()
    signum = signal.SIGINT if how == "is interrupted" else signal.SIGUSR1
    before = (lambda: stop_beside(processor)) if how == "pulls beside a stop" else lambda: None
    raised = at_line(number, signum, taken, idle, before)
    try:
        if how == "stops":
            processor.stop()
        else:
            take_all(processor, taken) if pulls else processor.run()
    except KeyboardInterrupt:
        pass  # where it hit nothing of the processor's, or `start` before anything had begun
    finally:
        sys.settrace(None)
    idle.set()
    if how != "stops":
        beside.join()
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


@pytest.mark.more  # tests/processor/test_leaving.py has single signals
@pytest.mark.parametrize(
    ("how", "step"),
    [("stops", 5), ("runs", 19), ("pulls", 31), ("pulls beside a stop", 31), ("is interrupted", 13)],
)
def test_a_signal_between_any_two_lines_ends_the_processor(tmp_path: Path, how: str, step: int) -> None:
    log(tmp_path, partitions=1, each=5)
    command = [sys.executable, "-c", PROGRAM, how, str(tmp_path / "hub.db"), "1", str(step), str(PATIENCE)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.stdout == "ended\n", ended.stderr[-3000:]
