"""Log files as tests need them."""

from __future__ import annotations

import gzip
from pathlib import Path

FORMAT_1 = Path(__file__).parent / "recorded" / "log-format-1.db.gz"


def write_format_1(path: Path) -> None:
    """A log as checkouts made it that wrote format 1."""
    path.write_bytes(gzip.decompress(FORMAT_1.read_bytes()))
