"""What holds for all tests: Ctrl-C can be tested wherever they run."""

import signal

# A shell that runs something in the background has it ignore Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
