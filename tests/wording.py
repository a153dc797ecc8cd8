"""The wording check of `make lint`: phrases that readers stumble over do not come back.

    python -m tests.wording [FILE …]

Reads Python files as text, so that docstrings, comments and messages are checked alike, also where a phrase stands on
two lines. Prints each hit with what to write instead, and exits with 1 if there is any. A phrase is added here once the
tree has none of it. Pages in `docs` are not read yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.repository import ROOT

FOLDERS = ("src", "testkit", "tests", "bench", "examples")
OWN = ("tests/wording.py", "tests/test_wording.py")
"""They hold the phrases."""
PHRASES = {
    r"\bso many\b(?! \w+ that\b)": "say which number: this many, at most `limit`, the first 100",
    r"\bso often\b(?! that\b)": "say how often: this often, at most `times` times",
    r"\bwho has not\b": "name the actor: a program that has not",
    r"\bwho is (there|about)\b": "name the actor: the members present, operations on the same events",
    r"\bwhat is (?-i:none)\b|\b(that|which) (is|are) (?-i:none)\b(?! of)": "say what it is: invalid, or empty",
    r"\b(?!(?:there|what|that|which)\b)\w+ is (?-i:none)(?=[.,;:)])": "say what it is not, or that it does not count",
    r"\bwhat is no (?!longer\b|more\b)": "say what it is: what is not a number",
    r"\bone's own\b": "name the owner: your own, the store's own",
}
MARGIN = r"\s+(?:[#*>|]+\s+)?"
"""What may stand between two words: a line's end and the next one's indent, with the mark of a comment."""
_PATTERNS = [(re.compile(phrase.replace(" ", MARGIN), re.IGNORECASE), cure) for phrase, cure in PHRASES.items()]


def hits(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, phrase and cure of each hit in a text, in the order of the text."""
    found = [(match.start(), match[0], cure) for pattern, cure in _PATTERNS for match in pattern.finditer(text)]
    for at, phrase, cure in sorted(found):
        yield text.count("\n", 0, at) + 1, " ".join(re.sub(r"[#*>|]", " ", phrase).split()), cure


def files() -> list[Path]:
    """All files that are read, in order."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if path.relative_to(ROOT).as_posix() not in OWN)


def main(arguments: Sequence[str]) -> int:
    """Print the hits in these files, or in all; whether there is any, as an exit code."""
    count = 0
    for path in map(Path, arguments) if arguments else files():
        for line, phrase, cure in hits(path.read_text(encoding="utf-8")):
            count += 1
            shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            print(f"{shown}:{line}: '{phrase}': {cure}")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
