"""Whether the quotes of a CSV file are whole.

Owns the rule: a value that begins with a quote ends with one, and a delimiter, the end of the line or of the file comes
next; a quote inside of it is written twice. A quote in a value that does not begin with one is an ordinary character.
Arrow reads leniently: it takes everything behind a stray quote, row after row up to the next quote, for one value.

Reads a block at a time, and keeps no more than one.
"""

from __future__ import annotations

import re
from typing import BinaryIO

_BLOCK = 4 << 20
_OPENING = re.compile(rb'[,\r\n]"(?:[^"]*+(?:""[^"]*+)*+"(?=[,\r\n]))?')
"""A quote with which a value begins, with all of the value where it ends as it should, which is quicker than a look."""
_QUOTES = re.compile(rb'"+')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def broken_quote(data: BinaryIO, block: int = _BLOCK) -> int | None:
    """The line, from 1, on which a quoted value begins that does not end as it should; None if all do."""
    text, at, line, opened_on = b"\n", 0, 0, 0  # as if a line had ended before the first byte
    while True:
        read = data.read(block)
        if not line:
            read = read.removeprefix(_BYTE_ORDER_MARK)
        text, at = text[at:] + read, 0
        while True:
            found = (_QUOTES if opened_on else _OPENING).search(text, at)
            if found is None:
                at = len(text) if opened_on else max(at, len(text) - 1)  # a quote may follow the last delimiter
                break
            if opened_on and found.end() == len(text) and read:
                at = found.start()  # more quotes may follow, or another character
                break
            at = found.end()
            if not opened_on:
                if at == found.start() + 2:
                    opened_on = line + text.count(b"\n", 0, at)
            elif len(found[0]) % 2:
                if text[at : at + 1] not in (b"", b",", b"\r", b"\n"):
                    return opened_on
                opened_on = 0
        line += text.count(b"\n", 0, at)
        if not read:
            return opened_on or None
