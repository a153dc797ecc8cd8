"""What a scraper and a probe do: they ask an endpoint of this machine."""

from __future__ import annotations

import urllib.error
import urllib.request

from tests.waiting import PATIENCE


def get(url: str) -> tuple[int, str]:
    """The status and the body of the answer."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - an address of this machine
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
