"""The service's time, as it is written in the headers of its answers and in the ETags of tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

from leasehold.errors import StoreError


def http_date(headers: Mapping[str, str]) -> float:
    """Seconds since the epoch in the Date of an answer: whole ones, cut off."""
    stated = headers.get("Date") or headers.get("date")
    if not stated:
        raise StoreError("the answer of the store has no Date, and its age cannot be told: is there a proxy between?")
    return parsedate_to_datetime(stated).timestamp()


def time_in_etag(etag: str) -> float | None:
    """When an entity of Azure's own tables was written, by its ETag; None where it says something else."""
    match = re.fullmatch(r"""W/"datetime'([^']+)'\"""", etag)
    if match is None:
        return None
    stated = re.sub(r"(\.\d{6})\d+", r"\1", unquote(match[1]))
    try:
        return datetime.fromisoformat(stated).timestamp()
    except ValueError:
        return None
