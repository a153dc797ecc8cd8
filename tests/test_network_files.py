"""Which files other kernels may write, by Linux's table of mounts, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold import network_files, open_lease_store, open_store
from leasehold.errors import ConfigError
from leasehold.hubs import open_hub
from leasehold.network_files import mount_at, mount_of, used_by_one_kernel

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /mnt/share rw,relatime shared:2 - nfs4 server:/export rw,vers=4.2
31 30 0:41 / /mnt/share/here rw - tmpfs tmpfs rw
32 21 0:42 / /mnt/with\\040blank rw - cifs //server/share rw
33 21 0:43 / /over rw - ext4 /dev/sdb1 rw
34 33 0:44 / /over rw master:3 propagate_from:2 - fuse.sshfs me@host:/ rw
broken line
35 21 0:45 / /short
"""

DOCKER_DESKTOP = """\
700 600 0:90 / / rw,relatime - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d
701 700 0:91 /Users/me/app /app rw,nosuid,nodev,relatime - fakeowner /run/host_mark/Users rw,fakeowner
702 700 254:1 /docker/volumes/data/_data /data rw,relatime master:9 - ext4 /dev/vda1 rw
703 700 0:92 /Users/me /older rw,relatime - fuse.grpcfuse grpcfuse rw,user_id=0
704 700 0:93 / /mac rw,relatime - virtiofs mac rw
"""

WSL = """\
68 79 8:32 / / rw,relatime - ext4 /dev/sdc rw,discard
107 68 0:64 / /mnt/c rw,noatime - 9p C:\\134 rw,dirsync,aname=drvfs;path=C:\\;uid=1000;gid=1000,trans=fd,rfd=5
108 68 0:65 / /mnt/d rw,noatime - drvfs D: rw,noatime,uid=1000
"""

SANDBOX = """\
12 1 0:12 / / rw - 9p none rw,trans=fd,rfd=4,wfd=4,aname=/
13 12 0:13 / /volume rw - 9p none rw,trans=fd
14 12 0:14 / /memory rw - tmpfs none rw
"""

KATA = "12 1 0:12 /passthrough/ab/rootfs / rw,relatime - virtiofs none rw\n"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/store.db", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/a/b.db", "nfs4"),
        ("/mnt/shared/b.db", "ext4"),
        ("/mnt/share/here/b.db", "tmpfs"),
        ("/mnt/with blank/b.db", "cifs"),
        ("/over/b.db", "fuse.sshfs"),
    ],
)
def test_the_mount_that_a_path_is_in(path: str, kind: str) -> None:
    mount = mount_at(path, MOUNTS)
    assert mount is not None
    assert mount.kind == kind
    assert mount.network == (kind in ("nfs4", "cifs", "fuse.sshfs"))
    assert not mount.passed_on


def test_a_table_that_says_nothing() -> None:
    assert mount_at("/a", "") is None


@pytest.mark.parametrize(
    ("mounts", "path", "passed_on"),
    [
        (DOCKER_DESKTOP, "/app/store.db", True),
        (DOCKER_DESKTOP, "/data/store.db", False),  # a named volume
        (DOCKER_DESKTOP, "/older/store.db", True),
        (DOCKER_DESKTOP, "/mac/store.db", True),
        (DOCKER_DESKTOP, "/srv/store.db", False),
        (WSL, "/home/me/store.db", False),
        (WSL, "/mnt/c/Users/me/store.db", True),
        (WSL, "/mnt/d/store.db", True),
        (SANDBOX, "/srv/store.db", False),  # its own root, whatever serves it
        (SANDBOX, "/volume/store.db", True),
        (SANDBOX, "/memory/store.db", False),
        (KATA, "/srv/store.db", False),
    ],
)
def test_what_a_host_passes_on_to_a_container_or_virtual_machine(mounts: str, path: str, passed_on: bool) -> None:
    mount = mount_at(path, mounts)
    assert mount is not None
    assert mount.passed_on == passed_on
    assert not mount.network


@pytest.mark.parametrize(
    ("kind", "passed_on"),
    [
        ("fuse.mergerfs", False),
        ("fuse.fuse-overlayfs", False),
        ("fuseblk", False),
        ("overlay", False),
        ("fuse", True),
        ("fuse.nobody-has-named-it", True),
        ("fuse.sshfs", False),  # a network's, which no setting allows
        ("vboxsf", True),
        ("btrfs", False),
    ],
)
def test_what_a_program_serves_is_local_only_where_that_is_known(kind: str, passed_on: bool) -> None:
    mount = mount_at("/data/x.db", f"21 1 0:1 / / rw - ext4 /dev/sda1 rw\n22 21 0:2 / /data rw - {kind} x rw\n")
    assert mount is not None
    assert mount.passed_on == passed_on


@pytest.mark.parametrize(
    ("stated", "path", "one"),
    [
        ("", "/data/x.db", False),
        ("/data", "/data/x.db", True),
        ("/data/", "/data/deep/x.db", True),
        ("/other:/data", "/data/x.db", True),
        ("/dat", "/data/x.db", False),
        ("/", "/data/x.db", True),
    ],
)
def test_folders_that_one_kernel_alone_uses(stated: str, path: str, one: bool) -> None:
    assert used_by_one_kernel(Path(path), {"LEASEHOLD_ONE_KERNEL": stated}) == one


@pytest.mark.parametrize("stated", ["1", "yes", "data", "/data:", ":", "/data:b"])
def test_what_names_no_folder_is_refused(stated: str) -> None:
    with pytest.raises(ConfigError, match=r"LEASEHOLD_ONE_KERNEL = .*absolute paths"):
        used_by_one_kernel(Path("/data/x.db"), {"LEASEHOLD_ONE_KERNEL": stated})


def test_this_machine_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = mount_of(tmp_path)
    assert mount is None or not (mount.network or mount.passed_on), "the tests run on a disk of this host"
    monkeypatch.setattr(network_files, "_MOUNTS", tmp_path / "none")
    assert mount_of(tmp_path) is None


def _table(tmp_path: Path, folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 21 0:40 / {folder} rw - {kind} server:/export rw\n")
    monkeypatch.setattr(network_files, "_MOUNTS", table)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("nfs4", r"network file system \(nfs4\).*disk of this host"),
        ("virtiofs", r"share is a file system \(virtiofs\) that other kernels may use.*named volume.*ONE_KERNEL=/"),
    ],
)
def test_a_link_to_a_share_is_followed_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, said: str
) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "link").symlink_to(share)
    _table(tmp_path, share, kind, monkeypatch)
    for folder in ("share", "link"):
        file = f"/{tmp_path}/{folder}/x.db"
        for ask in (
            lambda file=file: open_store(f"sqlite://{file}"),
            lambda file=file: open_lease_store(f"sqlite://{file}"),
            lambda file=file: open_hub(f"log://{file}"),
        ):
            with pytest.raises(ConfigError, match=said):
                ask()
    assert list(share.iterdir()) == []
    open_store(f"sqlite:///{tmp_path}/x.db")


def test_the_setting_allows_what_is_passed_on_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "link").symlink_to(share)
    for stated in (share, tmp_path / "link"):
        monkeypatch.setenv("LEASEHOLD_ONE_KERNEL", str(stated))
        _table(tmp_path, share, "9p", monkeypatch)
        open_store(f"sqlite:///{share}/x.db")
        _table(tmp_path, share, "nfs4", monkeypatch)
        with pytest.raises(ConfigError, match="network file system"):
            open_store(f"sqlite:///{share}/x.db")
