"""SQL that every database reads, in `sinks.beside`, keeps to what they all read alike."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository import ROOT

SHARED = ROOT / "src" / "leasehold" / "sinks" / "beside"
STATEMENT = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM) ")
RULES = {
    "an INSERT names its columns: in which order a table has them is a database's own": re.compile(
        r"INSERT INTO \S+ (AS \w+ )?(VALUES|SELECT)"
    ),
    "a row is compared with rows by IN, and with one by its key: a row equal to a subquery is not SQL everywhere": (
        re.compile(r"\w, ?[\w.]+\) = \(SELECT")
    ),
    "a name that is a word of SQL somewhere is quoted": re.compile(r'(?<![\w".%(])\b(at|first|last|value)\b(?![\w"])'),
}


def texts_of(source: str) -> Iterator[str]:
    """The texts of a module, each with `{}` for what is put in."""
    nodes = list(ast.walk(ast.parse(source)))
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in node.values}
    for each in joined:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in each.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def broken_by(source: str) -> list[str]:
    """The rules that statements of a module break, each with the statement."""
    statements = [text for text in texts_of(source) if STATEMENT.search(text)]
    return [f"{rule}: {text}" for text in statements for rule, wrong in RULES.items() if wrong.search(text)]


@pytest.mark.parametrize("path", sorted(SHARED.rglob("*.py")), ids=lambda path: str(path.relative_to(SHARED)))
def test_shared_sql_keeps_to_what_databases_read_alike(path: Path) -> None:
    assert broken_by(path.read_text()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {table} VALUES (%(pipeline)s)",
        "INSERT INTO {table} AS was VALUES (%(pipeline)s)",
        "SELECT key FROM {table} WHERE (a, p.b) = (SELECT a, b FROM {table} LIMIT 1)",
        "SELECT max(number), at FROM {table}",
    ],
)
def test_what_only_some_read_is_found(statement: str) -> None:
    assert len(broken_by(f'f"{statement}"')) == 1
