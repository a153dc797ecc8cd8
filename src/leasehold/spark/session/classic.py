"""What is asked of the session's own JVM at a program's start and end; Spark Connect has none.

Owns how Java behaves when the process ends: which signals it takes, and what it prints. Promises nothing over Spark
Connect: whoever calls asks `versions.is_connect` first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession


def say_no_error_after(ended: Callable[[], bool], spark: SparkSession) -> None:
    """PySpark's server for accumulators prints a traceback when Java ends before it: after the end that is no news."""
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    tell = server.handle_error

    def tell_unless_ended(request: Any, client_address: Any) -> None:
        if not ended():
            tell(request, client_address)

    server.handle_error = tell_unless_ended


def leave_sigterm_to_python(spark: SparkSession) -> None:
    """Have a Java that this process has started ignore SIGTERM, which service managers send to a whole group.

    Python ends what runs in order, and Java ends with Python, whose end of a pipe it watches. A Java that takes the
    signal as well stops Spark under the batch at hand.
    """
    context = spark.sparkContext
    if getattr(context._gateway, "proc", None) is None:
        return
    java: Any = context._jvm
    handling = java.sun.misc
    with suppress(Exception):  # a Java started with -Xrs leaves its signals to the system
        handling.Signal.handle(handling.Signal("TERM"), handling.SignalHandler.SIG_IGN)


def silence_java(spark: SparkSession) -> None:
    """Have Java say nothing more: neither in Spark's log, nor past it."""
    spark.sparkContext.setLogLevel("OFF")
    java: Any = spark.sparkContext._jvm
    nowhere = java.java.io.OutputStream.nullOutputStream()
    java.java.lang.System.setErr(java.java.io.PrintStream(nowhere))
