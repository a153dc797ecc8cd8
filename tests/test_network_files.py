"""Which files are on a network file system, by Linux's table of mounts, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold import network_files, open_lease_store, open_store
from leasehold.errors import ConfigError
from leasehold.hubs import open_hub
from leasehold.network_files import kind_at, network_file_system

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
    assert kind_at(path, MOUNTS) == kind


def test_a_table_that_says_nothing() -> None:
    assert kind_at("/a", "") is None


def test_this_machine_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert network_file_system(tmp_path) is None, "the tests run on a disk of this host"
    monkeypatch.setattr(network_files, "_MOUNTS", tmp_path / "none")
    assert network_file_system(tmp_path) is None


def test_a_link_to_a_share_is_followed_and_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "link").symlink_to(share)
    table = tmp_path / "mountinfo"
    table.write_text(f"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 21 0:40 / {share} rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(network_files, "_MOUNTS", table)
    for folder in ("share", "link"):
        file = f"/{tmp_path}/{folder}/x.db"
        for ask in (
            lambda file=file: open_store(f"sqlite://{file}"),
            lambda file=file: open_lease_store(f"sqlite://{file}"),
            lambda file=file: open_hub(f"log://{file}"),
        ):
            with pytest.raises(ConfigError, match=r"network file system \(nfs4\).*disk of this host"):
                ask()
    assert list(share.iterdir()) == []
    open_store(f"sqlite:///{tmp_path}/x.db")
