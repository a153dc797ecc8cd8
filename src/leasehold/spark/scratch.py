"""The folder that Spark calls a checkpoint and that is scratch to us.

Owns where it is and that no two processes use one at a time. Whatever happens to it costs nothing but events
read again: where to start is in the checkpoint store and what is done is in the sink.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from leasehold.errors import AlreadyInUse


class Scratch:
    """A folder for one instance, held for as long as the block lasts.

    An instance with a name of its own finds its folder again at the next start and replays the batch it died
    in; one without gets a temporary folder, removed at the end.
    """

    def __init__(self, parent: Path, name: str | None) -> None:
        self._temporary = name is None
        self._name = name or ""
        self.folder = Path(tempfile.mkdtemp(prefix="leasehold-")) if name is None else parent / name

    def __enter__(self) -> Scratch:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise AlreadyInUse(
                f"an instance with the owner id {self._name!r} is running already (its folder {self.folder} is "
                "locked). Give each instance an owner id of its own, or none: then it gets one."
            ) from None
        return self

    @property
    def spark_checkpoint(self) -> str:
        """What to give Spark as the checkpoint location."""
        return (self.folder / "spark").as_uri()

    def clear(self) -> None:
        """Forget everything in it."""
        shutil.rmtree(self.folder / "spark", ignore_errors=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
