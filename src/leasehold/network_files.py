"""Whether a file is on a network file system, where SQLite's locks and a host's clock hold nothing together.

Owns the list of those kinds and the reading of Linux's table of mounts. Promises to name only what is known to be
shared between hosts: kinds that may be anything (`fuse`, `9p`, `overlay`), and other systems' tables, count as local.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_SHARED = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs"),
    *("ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2", "gfs2", "orangefs", "pvfs2"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2"),
    "fuse.rclone",
)


def network_file_system(path: Path) -> str | None:
    """The kind of network file system that `path` is on, or would be made on; None where it is local or not known."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        real = os.path.realpath(path)
    except OSError:
        return None
    kind = kind_at(real, mounts)
    return kind if kind in _SHARED else None


def kind_at(path: str, mounts: str) -> str | None:
    """The kind of file system at an absolute path without links, by the text of `mountinfo`, if that says it."""
    best, kind = -1, None
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5 or not after:
            continue
        place = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= best:  # of two on one place, the later one hides the other
            best, kind = len(place), after.split(" ")[0]
    return kind
