"""A Spark standalone cluster from the pip package: a master and workers, each a process of its own on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pyspark

from leasehold.spark.session.java import use_java
from tests.waiting import until

PYTHON = sys.executable
_HOME = Path(pyspark.__file__).parent
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

EXECUTORS = f"""\
"spark.pyspark.python" = "{PYTHON}"
"spark.driver.host" = "127.0.0.1"
"spark.cores.max" = 2
"spark.executor.cores" = 1
"spark.executor.memory" = "512m"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""
"""Lines of a pipeline's section `[spark]`: two executors of one core each."""


class SparkCluster:
    """One master, and workers of this many cores at addresses of this machine, each a host of its own to Spark.

    `environment` is what the workers hand on to executors.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        cores: int = 1,
        hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1"),
    ) -> None:
        self._folder, self._cores = folder, cores
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "200m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA,
            "TMPDIR": str(folder),
        }
        use_java(self._environment)
        self._environment |= environment
        try:
            self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            for host in hosts:
                self.start_worker(host)
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> list[psutil.Process]:
        """The workers that live."""
        return [psutil.Process(process.pid) for process in self._processes[1:] if process.poll() is None]

    def start_worker(self, host: str = "127.0.0.1") -> None:
        """Start one more worker, and wait until the master knows it."""
        name = f"worker-{len(self._processes) - 1}"
        limits = ("--cores", str(self._cores), "--memory", f"{self._cores * 700}m", "--work-dir")
        self._start(
            name, "worker.Worker", "--host", host, "--webui-port", "0", *limits, str(self._folder / name), self.url
        )
        self._said(name, r"(Successfully registered with master)")

    def close(self) -> None:
        """End the cluster's processes, executors included."""
        executors = [executor for worker in self.workers for executor in worker.children(recursive=True)]
        for process in self._processes:
            process.kill()
            process.wait()
        for executor in executors:
            with contextlib.suppress(psutil.NoSuchProcess):
                executor.kill()

    def _start(self, name: str, role: str, *options: str) -> None:
        command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
        with (self._folder / f"{name}.log").open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [*command, *options], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._environment
                )
            )

    def _said(self, name: str, pattern: str) -> str:
        log = self._folder / f"{name}.log"

        def found() -> re.Match[str] | None:
            return re.search(pattern, log.read_text(errors="replace"))

        until(found, f"the {name} to be ready (see {log})")
        match = found()
        assert match
        return match[1]


def executor_of(task: int) -> psutil.Process | None:
    """The executor in which a task runs, if both live."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return next((one for one in psutil.Process(task).parents() if "java" in one.name()), None)
    return None
