"""What an instance is called that nobody has named.

Promises that no two are called alike, on whatever machines and in whatever containers: there the process id is often 1,
and hosts may be called the same. So who starts again without a name of its own is a new instance: what its predecessor
held has to expire first, unless it was given up. Host and process are in the name for people.
"""

from __future__ import annotations

import os
import re
import secrets
import socket

_LONGEST = 60
"""Characters of the host's name: its last ones, which differ between the pods of one deployment."""


def unnamed(process: int | None = None) -> str:
    """`host-process-random`, with the id of this process where none is given. Another one at each call."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[-_LONGEST:].strip("-.") or "host"
    return f"{host}-{os.getpid() if process is None else process}-{secrets.token_hex(4)}"
