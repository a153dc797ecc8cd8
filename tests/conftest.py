"""What holds for all tests: Ctrl-C can be tested wherever they run, and a Java of Spark's starts quickly."""

import os
import signal

from tests import class_archive

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
