"""How tests are shared out among workers: by file, but those that use a Spark session go to two workers.

Without this each worker gets some of their files, and starts a session of its own for them.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadFileScheduling

from tests.spark_sessions import FOLDER, SESSIONS, uses_session


class FewSessions(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """`--dist loadfile`, where every other file that uses a session goes to the same worker."""

    _turns: dict[str, int] | None = None

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if not uses_session(PurePosixPath(file)):
            return file
        self._turns = {} if self._turns is None else self._turns
        turn = self._turns.setdefault(file, len(self._turns) % SESSIONS)
        return f"{FOLDER} {turn}"
