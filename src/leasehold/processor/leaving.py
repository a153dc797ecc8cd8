"""Whether what your function raised means that the program is to end, and not only that the function failed.

Owns that judgement. `sys.exit` in a thread ends that thread alone, and a program whose output nobody reads any more
(`program | head`) fails at each event anew: left at that, the process would hold its partitions and work on none.
"""

from __future__ import annotations

import select
import sys


def means_to_leave(error: BaseException) -> bool:
    """Whether the program is to end: `sys.exit` was called, or who read the standard output is gone."""
    if isinstance(error, BrokenPipeError):
        return _nobody_reads_the_output()
    return isinstance(error, SystemExit | KeyboardInterrupt)


def _nobody_reads_the_output() -> bool:
    """Whether the pipe is broken that this program prints to; a broken connection to a database is a failure."""
    try:
        output = select.poll()
        output.register(sys.__stdout__.fileno(), 0)  # type: ignore[union-attr]  # it may be None, which is no pipe
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))
    except (AttributeError, ValueError, OSError):
        return False
