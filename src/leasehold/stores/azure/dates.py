"""The service's time, as it is written in the headers of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from leasehold.errors import StoreError


def http_date(headers: Mapping[str, str]) -> float:
    """Seconds since the epoch in the Date of an answer: whole ones, cut off."""
    stated = headers.get("Date") or headers.get("date")
    if not stated:
        raise StoreError("the answer of the store has no Date, and its age cannot be told: is there a proxy between?")
    return parsedate_to_datetime(stated).timestamp()
