"""What the demo says where stderr is no terminal."""

from __future__ import annotations

import pytest

from leasehold.cli.demo.command import Show
from leasehold.cli.output import TableOutput
from tests.dashboard.looks import group, row


def test_nothing_is_said_until_somebody_owns_a_partition_and_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    show = Show(TableOutput())
    show.EVERY = 0.0
    for _ in range(3):
        show(group(row("0", "")), 0.0, "")
    for _ in range(3):
        show(group(row("0", "blue/1"), row("1", "green/1")), 0.52, "")
    assert capsys.readouterr().err == " 52%  blue owns 1, green owns 1\n"
