"""One owner for each word, found by reading the code: a public class name is defined once in the product, and no
parameter is called by a pronoun or a participle, which say nothing to a reader or a search. The noun is in its type.

Nested classes, those of `if TYPE_CHECKING`, lambdas and comprehensions do not count.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.repository import ROOT

parsed = cache(ast.parse)
PRONOUNS = {"each", "it", "its", "mine", "one", "others", "ours", "some", "theirs", "they", "whom"}
PARTICIPLES = {"asked", "found", "given", "known", "left", "made", "said", "told", "wanted"}


def defined_twice(sources: Mapping[str, str]) -> Iterator[str]:
    places = defaultdict(list)
    for path, source in sources.items():
        for node in parsed(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    return (f"class {name}: {', '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1)


def unclear_parameters(sources: Mapping[str, str]) -> Iterator[str]:
    for path, source in sources.items():
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for argument in ast.iter_child_nodes(node.args):
                    if isinstance(argument, ast.arg) and argument.arg in PRONOUNS | PARTICIPLES:
                        yield f"{path}:{argument.lineno}: {node.name}({argument.arg})"


def read(paths: Iterable[Path]) -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(paths)}


def test_a_public_class_name_is_defined_once_in_the_product() -> None:
    paths = (ROOT / "src" / "leasehold").rglob("*.py")
    assert list(defined_twice(read(paths))) == [], "give all but one of them a name of their own"


def test_no_parameter_is_called_by_a_pronoun_or_a_participle() -> None:
    paths = (path for folder in ("src", "testkit/src") for path in (ROOT / folder).rglob("*.py"))
    assert list(unclear_parameters(read(paths))) == [], "call it by the noun in its type"


def test_the_second_class_of_a_name_is_found() -> None:
    nested = "class Outer:\n    class Place: ...\nclass _Own: ...\n"
    sources = {"a.py": "class Place: ...", "b.py": "\nclass Place: ...", "c.py": nested, "d.py": "class _Own: ..."}
    assert list(defined_twice(sources)) == ["class Place: a.py:1, b.py:2"]


def test_an_unclear_parameter_is_found() -> None:
    source = "def cut(self, *,\n        its, size=lambda one: one): return [each for each in size]\n"
    source += "async def put(*told): ...\n"
    assert sorted(unclear_parameters({"a.py": source})) == ["a.py:2: cut(its)", "a.py:3: put(told)"]
