"""Which files other kernels than this one may write, where SQLite's locks and its shared memory hold nothing together.

Owns the lists of such kinds of file systems and the reading of Linux's table of mounts. Other systems have no such
table: there every file counts as local, and so does a kind that nobody has named.

    network       several hosts mount it (NFS, SMB, Ceph): never
    passed on     a host gives its folder to virtual machines and containers (virtiofs, 9p, drvfs), or a program behind
                  FUSE, which may be anywhere, serves it: unless the user says that one kernel alone uses it
    local         the rest, what a machine or container has for its root, and what is known to be local behind FUSE

A root counts as local whatever its kind, since sandboxes such as gVisor and Kata have 9p or virtiofs there, and each
gives its root to nobody else. A host sees a folder that it passes on as its own disk: nothing tells it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from leasehold.errors import ConfigError

ONE_KERNEL = "LEASEHOLD_ONE_KERNEL"
"""The variable that names folders, with colons between them, whose files no other kernel uses."""

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs"),
    *("ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2", "gfs2", "orangefs", "pvfs2"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2"),
    "fuse.rclone",
)
_PASSED_ON = (
    *("virtiofs", "9p", "drvfs"),  # QEMU, Docker Desktop, Podman, WSL
    *("fakeowner", "osxfs"),  # Docker Desktop on macOS
    *("vboxsf", "vmhgfs", "prl_fs", "prl_vmfs"),  # VirtualBox, VMware, Parallels
    "fuse",
)
_LOCAL_BEHIND_FUSE = (
    *("fuse.mergerfs", "fuse.bindfs", "fuse.fuse-overlayfs", "fuse.unionfs", "fuse.unionfs-fuse"),
    *("fuse.ntfs-3g", "fuse.exfat", "fuse.ext4", "fuse.fuse2fs", "fuse.zfs-fuse"),
    *("fuse.encfs", "fuse.gocryptfs", "fuse.cryfs", "fuse.portal"),
)


@dataclass(frozen=True, slots=True)
class Mount:
    """What is mounted where: an absolute path, and the kind of file system."""

    place: str
    kind: str

    @property
    def network(self) -> bool:
        """Whether several hosts share it."""
        return self.kind in _NETWORK

    @property
    def passed_on(self) -> bool:
        """Whether other kernels may use it too."""
        behind_fuse = self.kind.startswith("fuse.") and self.kind not in _LOCAL_BEHIND_FUSE
        return self.place != "/" and not self.network and (self.kind in _PASSED_ON or behind_fuse)


def mount_of(path: Path) -> Mount | None:
    """The mount that a path is on, or would be made on, links followed; None where the system does not tell."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        real = os.path.realpath(path)
    except OSError:
        return None
    return mount_at(real, mounts)


def mount_at(path: str, mounts: str) -> Mount | None:
    """The mount of an absolute path without links, by the text of `mountinfo`, if that says it."""
    found: Mount | None = None
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5 or not after:
            continue
        place = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
        # of two on one place, the later one hides the other
        if _inside(path, place) and (found is None or len(place) >= len(found.place)):
            found = Mount(place, after.split(" ")[0])
    return found


def used_by_one_kernel(path: Path, environment: Mapping[str, str]) -> bool:
    """Whether `LEASEHOLD_ONE_KERNEL` names a folder that the path is in. Raises `ConfigError` if it names none."""
    stated = environment.get(ONE_KERNEL, "")
    folders = stated.split(":") if stated else []
    if not all(Path(folder).is_absolute() for folder in folders):
        raise ConfigError(ONE_KERNEL, stated, "absolute paths of folders, with colons between them", "As in /data")
    real = os.path.realpath(path)
    return any(_inside(real, os.path.realpath(folder)) for folder in folders)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
