"""The command that installs what is missing, from where this installation came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leasehold.installation import NAME, command_by, command_for, command_for_kit

SITE = "https://host.example/leasehold"


@pytest.mark.parametrize(
    ("record", "command"),
    [
        (None, "pip install 'leasehold[kafka]'"),
        ({"url": "file:///a%20b/leasehold", "dir_info": {}}, "pip install '/a b/leasehold[kafka]'"),
        ({"url": "file:///leasehold", "dir_info": {"editable": True}}, "pip install -e '/leasehold[kafka]'"),
        ({"url": "file:///x/leasehold-1-py3.whl", "archive_info": {}}, "pip install '/x/leasehold-1-py3.whl[kafka]'"),
        ({"url": f"{SITE}.whl", "archive_info": {}}, f"pip install 'leasehold[kafka] @ {SITE}.whl'"),
        ({"url": SITE, "vcs_info": {"vcs": "git"}}, f"pip install 'leasehold[kafka] @ git+{SITE}'"),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came_from(record: dict[str, Any] | None, command: str) -> None:
    assert command_by(record, "leasehold[kafka]") == command


@pytest.mark.parametrize("record", ["", "{", "[]", '{"url": 1}'])
def test_a_record_that_nobody_can_read_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    found = recorded(tmp_path, monkeypatch, record)
    assert found == ("pip install 'leasehold[kafka]'", "pip install leasehold-testkit")


def test_the_kit_is_beside_the_product_in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.dumps({"url": "file:///co", "dir_info": {"editable": True}})
    found = recorded(tmp_path, monkeypatch, record)
    assert found == ("pip install -e '/co[kafka]'", "pip install -e /co/testkit")


def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch, record: str) -> tuple[str, str]:
    """The commands where pip has recorded this of the package that is found first."""
    place = folder / f"{NAME}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
    (place / "direct_url.json").write_text(record)
    monkeypatch.syspath_prepend(folder)
    return command_for("kafka"), command_for_kit()
