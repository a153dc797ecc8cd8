"""No test waits for a time, asserts how long something took, or gives what has to succeed a time that it may miss.

Reads the tests as text. What measures time is marked `timing` and may do all of it. Elsewhere a pause is one of
`tests.waiting`, and a short time ends its line with the reason why nothing depends on it:

    impatient: WHY    a time-out that has to fire, and under which nothing runs that has to succeed
    expires: WHY      what has to expire while the test waits for that
    by hand: WHY      seconds of a clock that the test moves, or a value that is only compared
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from tests.repository import ROOT

FOLDERS = ("tests", "testkit/tests", "testkit/src/leasehold_testkit/contracts")
MODULES = sorted({file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")} - {ROOT / "tests/waiting.py"})
SHORT = 5.0
"""Seconds that a busy machine may miss."""
REASON = re.compile(r"# .*\b(impatient|expires|by hand): \w")
NOW = re.compile(r"\b(monotonic|perf_counter|time|now)\([\w.]*\)")
PASSED = re.compile(rf"{NOW.pattern} - (?!(datetime\.)?timedelta)[A-Za-z_]")
LASTS = re.compile(r"timeout|expiration|duration|patience|deadline", re.IGNORECASE)
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")
SAID = re.compile(
    rf"(?:timeout|expiration)=(?P<lasts>{DURATION.pattern})\b|\bTimer\((?P<after>\d+\.?\d*)", re.IGNORECASE
)
"""In a text, such as a URL or a program: an option with its duration, or a timer with its seconds."""
TO_MEND = f"is below {SHORT:g} s: give it tests.waiting.NEVER, or say why nothing depends on it"


def broken(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a module that break a rule, and which."""
    lines = text.splitlines()
    nodes = list(ast.walk(ast.parse(text)))
    took = _took(nodes)
    excused = {line for node in nodes if _measures_time(node) for line in _lines(node)}
    reasons = {number for number, line in enumerate(lines, start=1) if REASON.search(line)}
    for node in nodes:
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.ImportFrom) and re.match(r"(testkit\.)?tests\.(.*\.)?test_", f"{node.module}."):
            yield line, "imports another test module: what both use has a module of its own"
        if line in excused or not reasons.isdisjoint((line, getattr(node, "end_lineno", line))):
            continue
        if _calls(node, "sleep") and ast.unparse(node.func) in ("time.sleep", "sleep", "asyncio.sleep"):
            yield line, "pauses: wait for a condition, with tests.waiting"
        if isinstance(node, (ast.Compare, ast.Call)) and _bounds_time(node, took):
            yield line, "asserts how long something took: wait for its outcome, or mark the test as timing"
        if isinstance(node, ast.keyword) and node.arg and LASTS.search(node.arg) and _is_short(node.value):
            yield line, f"{node.arg} {TO_MEND}"
        if _calls(node, "Timer") and node.args and _is_short(node.args[0]):
            yield line, f"a timer {TO_MEND}"
        if isinstance(node, ast.Dict):
            yield from (each for each in _short_entries(node) if each[0] not in reasons)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (each for each in _said(node.value, line) if each[0] not in reasons)


def _measures_time(node: ast.AST) -> bool:
    """A test, or a class or file of tests, that is marked `timing`."""
    marks = getattr(node, "decorator_list", [])
    return any("mark.timing" in ast.unparse(mark) for mark in marks)


def _lines(node: ast.AST) -> list[int]:
    first = getattr(node, "lineno", 0)
    return list(range(first, (getattr(node, "end_lineno", None) or first) + 1)) if first else []


def _took(nodes: list[ast.AST]) -> set[str]:
    """The names that are given what has passed: `took = time.monotonic() - started`."""
    given = [node for node in nodes if isinstance(node, ast.Assign) and _is_passed(node.value)]
    return {target.id for node in given for target in node.targets if isinstance(target, ast.Name)}


def _bounds_time(node: ast.Compare | ast.Call, took: set[str]) -> bool:
    """`0 <= time.time() - at < 3`, the other way round, or `approx(time.time(), abs=3)`: bounds on what has passed."""
    if isinstance(node, ast.Call):
        return _calls(node, "approx") and any(NOW.search(ast.unparse(each)) for each in node.args)
    below = [
        left if isinstance(operator, (ast.Lt, ast.LtE)) else right
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
        if isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
    ]
    return any((isinstance(each, ast.Name) and each.id in took) or _is_passed(each) for each in below)


def _is_passed(value: ast.expr) -> bool:
    """Whether it is time that has passed, or is made from it. Writes no other text out: that would take seconds."""
    subtracts = any(isinstance(each, ast.Sub) for each in ast.walk(value))
    return subtracts and bool(PASSED.search(ast.unparse(value)))


def _calls(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    """Whether this calls what is named so, of whatever module or object."""
    if not isinstance(node, ast.Call):
        return False
    return name in (getattr(node.func, "id", None), getattr(node.func, "attr", None))


def _is_short(value: ast.expr) -> bool:
    """Whether it is a number of seconds, or the text of a duration, that a busy machine may miss."""
    if not isinstance(value, ast.Constant):
        return False
    if isinstance(value.value, str):
        return 0 < _seconds(value.value) < SHORT
    return isinstance(value.value, (int, float)) and 0 < value.value < SHORT


def _seconds(text: str) -> float:
    """Of `500ms` or `2.5s`; 0 of any other text."""
    found = DURATION.fullmatch(text)
    return float(found[1]) / (1_000 if found[2].lower() == "ms" else 1) if found else 0.0


def _short_entries(node: ast.Dict) -> Iterator[tuple[int, str]]:
    """Entries of a dictionary that are options with the text of a duration."""
    for key, value in zip(node.keys, node.values, strict=True):
        name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
        if LASTS.search(name) and isinstance(value, ast.Constant) and isinstance(value.value, str) and _is_short(value):
            yield value.lineno, f"{name} {TO_MEND}"


def _said(text: str, line: int) -> Iterator[tuple[int, str]]:
    """What a text says that is short, by its line."""
    for found in SAID.finditer(text):
        if 0 < (_seconds(found["lasts"]) if found["lasts"] else float(found["after"])) < SHORT:
            yield line + text.count("\n", 0, found.start()), f"{found[0]} {TO_MEND}"


@pytest.mark.more
def test_all_tests_wait_for_conditions() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {why}" for path in sorted(MODULES) for line, why in broken(path.read_text())
    ]
    assert found == [], "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(1)",
        "from tests.sinks.test_contract import place",
        "from tests.test_model import place",
        "assert time.monotonic() - started < 3",
        "assert 3 > time.perf_counter() - started",
        "took = time.monotonic() - started\nassert took < 3",
        "assert 0 <= time.time() - at < 300",
        "assert datetime.now(UTC) - at < timedelta(minutes=1)",
        "assert at == pytest.approx(time.time(), abs=60)",
        "open_store(url, timeout=1)",
        "Settings(partition_expiration=2.5)",
        "stream(requestTimeout='500ms')",
        "OPTIONS = {\n    'requestTimeout': '1s'}",
        "open_hub('kafka://host/topic?request_timeout=1s')",  # by hand: an example
        "open_hub(f'kafka://{host}/topic?request_timeout=500ms&transfer_timeout=9s')",  # by hand: an example
        "threading.Timer(0.4, stop).start()",  # by hand: an example
        "PROGRAM = 'import threading; threading.Timer(0.4, stop).start()'",  # by hand: an example
    ],
)
def test_what_is_refused(text: str) -> None:
    assert [line for line, _ in broken(text)] == [text.count("\n") + 1]


@pytest.mark.parametrize(
    "text",
    [
        "until(lambda: seen, 'an event')",
        "@pytest.mark.timing\ndef test_a() -> None:\n    assert time.monotonic() - started < 3",
        "open_store(url, timeout=30)",
        "open_store(\n    url,\n    timeout=1,  # impatient: the server is frozen\n)",
        "while time.monotonic() < deadline:\n    pass",
        "assert before <= at <= time.time()",
        "open_hub('kafka://host/topic?request_timeout=10s&x=1s')",
        "open_hub(f'kafka://host/topic?request_timeout={PATIENCE:g}s')",
        "stream(requestTimeout='30s', settleDelay='0s', interval='1s')",
        "PROGRAM = '''\nTimer(0.4, stop)  # expires: by itself\n'''",
        "threading.Timer(NEVER, stop).start()",
        "from tests.sinks.places import place",
    ],
)
def test_what_is_fine(text: str) -> None:
    assert list(broken(text)) == []
