"""Opens a Spark session that is quiet, quick on small batches and needs nothing set up before.

Owns the defaults and the environment that Spark's own scripts read: a Java that this release of Spark runs on
(`java.py`), this interpreter for the Python workers and the loopback address, the latter two only where the workers
are on this machine. Refuses a PySpark, a Java or a user that Leasehold does not work with, before Java is started.
Whatever the caller's `conf` says, wins; what is already in the environment stays.

Concurrency: `JavaStart` starts the Java in a thread of its own. Whoever opens the session waits for the thread, however
long it stops.
"""

from __future__ import annotations

import os
import pwd
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from leasehold.errors import ConfigError, SparkUnavailable
from leasehold.spark.session.endings import end_quietly
from leasehold.spark.session.java import use_java
from leasehold.spark.session.versions import check_release, newest_java, release, session_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # A plan that is shown or logged shows the options of its sources, but those of such names.
    "spark.sql.redaction.options.regex": "(?i)url|hub|store|tables|password|secret|token|key",
}
"""What a session has unless its `conf` says otherwise; `session_defaults` has those that not every Spark knows."""

MASTER_TIMEOUT = 3.0
"""Seconds that an address of Spark's master may take to answer."""
START_TIMEOUT = 5.0
"""Seconds for which a program that ends without a session waits for the Java that it has started."""
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_GIVES_MEMORY_BACK = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:G1PeriodicGCInterval=10000 -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
)
"""Java gives back what it does not use, also while nothing comes: 160 of the 570 MiB that it otherwise keeps."""


def open_session(app_name: str, conf: Mapping[str, str] | None = None, master: str = "local[2]") -> SparkSession:
    """The Spark session of this process, named `app_name` on `master`, with `DEFAULTS` below `conf`.

    A process has one session: where there is one already it is returned, with those settings of `conf`
    that may change while it runs. A program without handlers of its own ends in order at Ctrl-C and SIGTERM.
    Raises `SparkUnavailable` for a master that does not answer, `MissingDependency` without PySpark, and `ConfigError`
    for a PySpark that is too old, without a Java that this one runs on, and for a user id without a name.
    """
    return _opened(_prepared(app_name, conf or {}, master))


class JavaStart:
    """The start of a session's Java, while the program does what needs no Spark; then `open`.

    The arguments are those of `open_session`. For a session of Spark Connect nothing is started here. As a context
    manager it ends when the Java is there, or after `START_TIMEOUT` seconds: what Java says at its start comes before
    what the program says at its end.
    """

    def __init__(self, app_name: str, conf: Mapping[str, str], master: str) -> None:
        self._asked = (app_name, conf, master)
        self._settings: dict[str, str] = {}
        self._error: Exception | None = None
        check_release()  # imports PySpark, which fails where two threads do so at once
        self._thread = threading.Thread(target=self._run, name="leasehold-java", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the Java is there, or has failed to start."""
        self._thread.join()

    def open(self) -> SparkSession:
        """Wait for the Java, and open the session. Raises what `open_session` does."""
        self.wait()
        if self._error is not None:
            raise self._error
        return _opened(self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join(START_TIMEOUT)

    def _run(self) -> None:
        try:
            self._settings = settings = _prepared(*self._asked)
            asks_for_connect = {"SPARK_API_MODE", "SPARK_CONNECT_MODE"} & {*os.environ} or "spark.api.mode" in settings
            if _is_here(settings) and not asks_for_connect:
                from pyspark import SparkConf, SparkContext

                SparkContext._ensure_initialized(conf=SparkConf().setAll([*settings.items()]))
        except Exception as error:  # noqa: BLE001 - it is for whoever opens the session
            self._error = error


def _check_user() -> None:
    """Refuse a user id without a name: Java's log-in fails without one, and shows many lines that do not say so."""
    user = os.geteuid()
    try:
        pwd.getpwuid(user)
    except KeyError:
        raise ConfigError(
            "user id",
            user,
            "the password file has no entry for it, and Spark's Java logs in by the name that stands there",
            "Run as a user that the image has, or let the container's start add a line to /etc/passwd: "
            f"leasehold:x:{user}:0::/tmp:/bin/sh",
        ) from None


def check_master(master: str) -> None:
    """Refuse a standalone master of which no address answers: Spark would say nothing for a minute.

    Raises `SparkUnavailable`.
    """
    if not master.startswith("spark://"):
        return
    reasons = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=MASTER_TIMEOUT).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{place}: {error}")
        else:
            return
    raise SparkUnavailable(
        f"Spark's master {master} cannot be reached ({'; '.join(reasons)}). Start it, or correct master"
    )


def settings_for(conf: Mapping[str, str]) -> dict[str, str]:
    """All that a session is started with: `DEFAULTS`, then `conf`; options for the driver's Java are joined."""
    logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    # Java takes the last of two, so theirs wins.
    joined = f"{logging} {_GIVES_MEMORY_BACK} {conf.get(_DRIVER_OPTIONS, '')}".strip()
    return {**DEFAULTS, **session_defaults(release()), **conf, _DRIVER_OPTIONS: joined}


def _opened(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    check_master(settings["spark.master"])
    before = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    end_quietly(spark, before)
    return spark


def _is_here(settings: Mapping[str, str]) -> bool:
    """Whether a session of these settings has a Java of its own, on this machine."""
    return "SPARK_REMOTE" not in os.environ and "spark.remote" not in settings


def _prepared(app_name: str, conf: Mapping[str, str], master: str) -> dict[str, str]:
    """All that a session is started with. Sets what Spark reads from the environment before its Java starts."""
    check_release()
    settings = {"spark.app.name": app_name, "spark.master": master, **settings_for(conf)}
    if _is_here(settings):
        _check_user()
        use_java(newest=newest_java(release()))
    local = settings["spark.master"].startswith("local")
    # PySpark reads this setting from the environment only when it is started from Python. Its own default is whatever
    # `python3` is on PATH, which need not be where Leasehold is.
    if python := settings.get("spark.pyspark.python", sys.executable if local else ""):
        os.environ.setdefault("PYSPARK_PYTHON", python)
    if local:
        # No name to look up, and no interface that a laptop may lose while it runs.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if os.environ.get("PYSPARK_PYTHON") == sys.executable:
            settings.setdefault("spark.python.daemon.module", "leasehold.spark.session.daemon")
    return settings
