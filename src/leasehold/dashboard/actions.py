"""What the dashboard may do when it is allowed to: have rejected and parked events tried again, or dropped.

Owns the form of a request, and its execution: by `leasehold rejected` or `leasehold parked` as a process of its
own, so that nothing of the transform, nor Spark, comes into the server, and what a person does here and there is the
same. Promises one action at a time for a pipeline, that no text of a request is ever an option or a command, and that
an action ends after `LONGEST` seconds at the latest. An action that is cut off leaves done what was done, as
these commands say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leasehold.printable import span

LONGEST = 600.0
MOST_EVENTS = 200
LONGEST_REASON = 500
COMMANDS = ("rejected", "parked")


class BadRequest(ValueError):
    """A request that asks for nothing that can be done; the text says why."""


@dataclass(frozen=True, slots=True)
class Action:
    """Try these events again, or drop them. `events` are partitions and numbers of the hub of this identity; `of` says
    among which they are, the rejected or the parked ones."""

    kind: str
    hub: str
    events: tuple[tuple[str, int], ...]
    because: str = ""
    of: str = "rejected"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Read a request. Raises `BadRequest`."""
        try:
            said = json.loads(text)
            kind, hub, because = said["action"], said["hub"], said.get("because", "")
            of = said.get("of", "rejected")
            events = tuple((partition, number) for partition, number in said["events"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadRequest("an action is a JSON object with action, hub and events") from error
        texts = [kind, hub, because, of, *(partition for partition, _ in events)]
        if not all(isinstance(one, str) and _is_plain(one) for one in texts):
            raise BadRequest("action, hub, because, of and partitions are texts")
        if not all(type(number) is int and number >= 0 for _, number in events):
            raise BadRequest("an event has a partition and a sequence number")
        if of not in COMMANDS:
            raise BadRequest("of is rejected or parked")
        if kind not in ("retry", "drop") or not hub or not 0 < len(events) <= MOST_EVENTS:
            raise BadRequest(f"retry or drop, and 1 to {MOST_EVENTS} events of a hub")
        if kind == "drop" and not 0 < len(because.strip()) <= LONGEST_REASON:
            raise BadRequest(f"to drop events say why, in at most {LONGEST_REASON} characters")
        return cls(kind, hub, events, because.strip(), of)

    def words(self) -> list[str]:
        """The options of the command; each value is bound to its option, whatever it begins with."""
        chosen = [f"--event={partition}:{number}" for partition, number in self.events]
        return [f"--hub={self.hub}", *chosen, *([f"--because={self.because}"] if self.kind == "drop" else [])]


def _is_plain(text: str) -> bool:
    """Whether a process can be given it."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False


class Actions:
    """Acts on the pipeline of `file`, with the `settings` that the dashboard was given. For many threads."""

    def __init__(self, file: Path, settings: Sequence[str]) -> None:
        self._file, self._settings = file.absolute(), tuple(settings)
        self._busy = threading.Lock()

    def act(self, action: Action) -> tuple[int, dict[str, Any]]:
        """Do it. Returns an HTTP status and what is to be told: `result`, or `error`."""
        if not self._busy.acquire(blocking=False):
            return 409, {"error": "another action on this pipeline is under way: wait for its end"}
        try:
            return self._run(action)
        except subprocess.TimeoutExpired:
            return 504, {"error": f"it was not done after {span(LONGEST)}, and was ended"}
        finally:
            self._busy.release()

    def _run(self, action: Action) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "leasehold", action.of, action.kind, *action.words(), "--json"]
        command += [f"--set={one}" for one in self._settings]
        done = subprocess.run(  # noqa: S603 -- our own command, and every value bound to its option
            [*command, "--", str(self._file)],
            env={**os.environ, "LEASEHOLD_LOG_FORMAT": "text"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # it may quote anything
            timeout=LONGEST,
            check=False,
        )
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("leasehold: ")]
            return 422, {"error": "\n".join(said).removeprefix("leasehold: ") or f"leasehold {action.of} has failed"}
        return 200, {"result": json.loads(done.stdout.splitlines()[-1])}
