"""Whether what your function raised means that the program is to end, and not only that the function failed.

Owns that judgement, and how the program then ends. `sys.exit` in a thread ends that thread alone, and a program whose
output nobody reads any more (`program | head`) fails at each event anew: left at that, the process would hold its
partitions and work on none. Promises that a program in a pipe ends without a word when the other end of the pipe has
left, as others do.
"""

from __future__ import annotations

from leasehold.printable import drop_unread_output, nobody_reads_the_output


def means_to_leave(error: BaseException) -> bool:
    """Whether the program is to end: `sys.exit` was called, or who read the standard output is gone."""
    if isinstance(error, BrokenPipeError):
        return nobody_reads_the_output()
    return isinstance(error, SystemExit | KeyboardInterrupt)


def is_quiet(error: BaseException) -> bool:
    """Whether nobody wants to hear of it: it means to leave, since who read the standard output is gone."""
    return isinstance(error, BrokenPipeError) and means_to_leave(error)


def as_exit(error: BaseException) -> BaseException:
    """What ends the program for `error`, which means to leave: of a standard output that nobody reads, exit code 1.

    What that output still holds goes nowhere then, or Python would complain of it at its end.
    """
    if not is_quiet(error):
        return error
    drop_unread_output()
    return SystemExit(1)
