"""Results as tables and as JSON: complete, uncut, and each on its stream."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from leasehold.cli.output import Column, JsonOutput, Output, Result, ResultTable, TableOutput, plain
from leasehold.printable import LONGEST

COLUMNS = (Column("partition", "Partition"), Column("owner", "Owner"), Column("lag", "Lag", right=True))
LONG = "a name with [brackets] :smile: " * 12
RESULT = Result(
    "two partitions", {"hub": "log:///é"}, ResultTable("partitions", COLUMNS, [("0", LONG, 1234567), ("1", None, 0)])
)


def test_a_table_is_whole_where_it_does_not_go_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    TableOutput().show(RESULT)
    header, first, second, summary = capsys.readouterr().out.splitlines()
    assert header.split() == ["Partition", "Owner", "Lag"]
    assert LONG.strip() in first
    assert first.endswith("1,234,567")
    assert second.split() == ["1", "-", "0"]
    assert summary == "two partitions"


def test_json_is_one_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output = JsonOutput()
    output.show(RESULT)
    output.show(Result("second", {"events": 2}))
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first) == {
        "hub": "log:///é",
        "partitions": [{"partition": "0", "owner": LONG, "lag": 1234567}, {"partition": "1", "owner": None, "lag": 0}],
    }
    assert json.loads(second) == {"events": 2}


@pytest.mark.parametrize("output", [TableOutput, JsonOutput])
def test_remarks_go_to_stderr_and_progress_only_to_a_terminal(
    output: type[Output], capsys: pytest.CaptureFixture[str]
) -> None:
    made = output()
    made.note("a remark [not markup]")
    with made.progress("sending", 10) as done:
        done(5)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "a remark [not markup]\n"


def test_output_is_plain_text_in_a_pipe_of_a_plain_locale() -> None:
    program = (
        "from leasehold.cli.output import *\n"
        "TableOutput().show(Result('é', {}, ResultTable('rows', [Column('a', 'A')], [['x' * 300]])))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env={"LC_ALL": "C", "TERM": "xterm-256color"}
    )
    assert ran.stdout.decode() == f"A{' ' * 299}\n{'x' * 300}\né\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("", "-"), (0, "0"), (1234, "1,234"), (1.5, "1.5"), (2.0, "2"), (0.12345, "0.123"), (True, "yes")],
)
def test_values_as_people_read_them(value: object, text: str) -> None:
    assert plain(value) == text


HOSTILE = "blue\x1b[2J\x9b1m\u202egreen\u2066\r\nok"


def test_what_others_wrote_tells_the_terminal_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    table = ResultTable("owners", [Column("owner", "Owner")], [[HOSTILE]])
    for output in (TableOutput(), JsonOutput()):
        output.show(Result(f"owned by {HOSTILE}", {"owner": HOSTILE}, table))
        output.note(HOSTILE)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert all(char.isprintable() or char == "\n" for char in text)
    *_, document = said.out.splitlines()
    assert json.loads(document) == {"owner": HOSTILE, "owners": [{"owner": HOSTILE}]}
    assert r"blue\x1b[2J\x9b1m\u202egreen\u2066\r" in said.out


def test_a_cell_shows_no_more_than_can_be_read_and_json_has_it_whole(capsys: pytest.CaptureFixture[str]) -> None:
    large = "x" * 1_000_000
    for output in (TableOutput(), JsonOutput()):
        output.show(Result("", {}, ResultTable("owners", [Column("owner", "Owner")], [[large]])))
    _, row, document = capsys.readouterr().out.splitlines()
    assert row == f"{'x' * (LONGEST - 1)}…"
    assert json.loads(document) == {"owners": [{"owner": large}]}


def test_a_table_wider_than_the_terminal_has_its_remarks_under_it_once() -> None:
    """Equal remarks have one number; a short one stays in its cell, and so do all where there is room."""
    long, other = "raise maximum_partitions, or start another instance", "the hub has removed what was unread"
    columns = [Column("partition", "Partition"), Column("remark", "Remark", remark=True)]
    table = ResultTable("partitions", columns, [("0", long), ("1", "waits"), ("2", other), ("3", long), ("4", None)])
    narrow, under = table.laid_out(40)
    assert [*narrow.columns[1].cells] == [Text(cell) for cell in ("(1)", "waits", "(2)", "(1)", "-")]
    assert under == [f"(1) {long}", f"(2) {other}"]
    wide, none = table.laid_out(9 + 2 + len(long))
    assert [*wide.columns[1].cells] == [Text(cell) for cell in (long, "waits", other, long, "-")]
    assert none == []
    assert table.laid_out(9 + 2 + len(long) - 1)[1] == under
    assert table.records()[0] == {"partition": "0", "remark": long}


def test_on_a_terminal_a_table_is_as_wide_as_that() -> None:
    """The remarks wrap below it; elsewhere a line is as long as its content."""
    columns = [Column("partition", "Partition"), Column("remark", "Remark", remark=True)]
    result = Result("done", {}, ResultTable("partitions", columns, [("0", LONG[:150]), ("1", LONG[:150])]))
    shown = StringIO()
    output = TableOutput()
    output.results = Console(file=shown, width=60, force_terminal=True, color_system=None)
    output.show(result)
    lines = shown.getvalue().splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert [line.startswith("(1) ") for line in lines].count(True) == 1
    assert lines[-1] == "done"
