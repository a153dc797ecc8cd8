"""JARs and archives from Maven's repository, as `mvn` is configured on the machine, kept beside the interpreter.

Where there is no `mvn`, or what it is asked for cannot be had, the test that asks is skipped with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from tests.left_out import failed
from tests.node_packages import locked

EVENT_HUBS_PROCESSOR = (
    "com.azure:azure-messaging-eventhubs:5.21.3",
    "com.azure:azure-messaging-eventhubs-checkpointstore-blob:1.21.5",
)
"""Java's official event processor."""
SPARK_KAFKA = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""Spark's own Kafka source, to be had `alone`."""

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>leasehold</groupId><artifactId>tests</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = ("groupId", "artifactId", "version", "type", "classifier")
_WITHOUT = "<exclusions><exclusion><groupId>{}</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_ELSEWHERE = "io.confluent"
"""A group of which Debezium's connectors for MySQL and MariaDB name a converter: it is in a repository of its own."""


def jars(name: str, coordinates: Sequence[str], *, alone: bool = False) -> Path:
    """A folder with these JARs, `group:name:version` each, and with what they need, unless they are wanted `alone`.

    Spark's parent POM names a repository of its own, which need not be reached: for what has that parent say `alone`,
    and name the rest.
    """
    return _fetched(name, coordinates, "copy-dependencies", alone=alone)


def unpacked(name: str, archive: str) -> Path:
    """A folder with what is in an archive, `group:name:version:type:classifier`."""
    return _fetched(name, [archive], "unpack-dependencies", alone=True)


def _fetched(name: str, coordinates: Sequence[str], goal: str, *, alone: bool) -> Path:
    if shutil.which("mvn") is None:
        pytest.skip(f"{name} is left out: there is no mvn here")
    parent = Path(sys.prefix) / "share" / "leasehold-tests"
    folder = parent / f"maven-{name}"
    parent.mkdir(parents=True, exist_ok=True)
    pom = _POM.format(dependencies="".join(_dependency(each, alone=alone) for each in coordinates))
    with locked(parent / "lock"):
        complete = folder / "complete"
        if not complete.exists() or complete.read_text() != pom:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "pom.xml").write_text(pom)
            done = subprocess.run(
                ["mvn", "-q", "-B", f"dependency:{goal}", "-DincludeScope=runtime", "-DoutputDirectory=jars"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if done.returncode:
                failed(f"{name} is left out: mvn says {done.stdout.strip()[:500]}")
            complete.write_text(pom)
    return folder / "jars"


def _dependency(coordinates: str, *, alone: bool) -> str:
    parts = zip(_DEPENDENCY, coordinates.split(":"), strict=False)
    said = "".join(f"<{name}>{escape(part)}</{name}>" for name, part in parts)
    return f"<dependency>{said}{_WITHOUT.format('*' if alone else _ELSEWHERE)}</dependency>\n"


def java_program(what: str, name: str, coordinates: Sequence[str], source: Path) -> list[str]:
    """The command that runs the program in the file `source`, compiled against these JARs and what they need.

    `what` it is, for the reason why it is left out.
    """
    libraries = jars(name, coordinates)
    if (compiler := shutil.which("javac")) is None:
        failed(f"{what} is left out: there is no javac here")
    classes = libraries.parent / "classes"
    path = f"{libraries}/*"
    subprocess.run([compiler, "-cp", path, "-d", str(classes), str(source)], check=True, timeout=300)
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{path}:{classes}", source.stem]
