"""What a link is attached to, read from text.

Owns the addresses of Service Bus (`QUEUE`, `TOPIC`, `TOPIC/Subscriptions/NAME`, each with `/$DeadLetterQueue` and
`/$management` behind it, and `$cbs`), also as a URL, in whatever case. Which of them there are is not known here. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from leasehold_testkit.emulators.amqp.conditions import INVALID_FIELD, AmqpError

CBS, MANAGEMENT, DEAD = "$cbs", "$management", "$deadletterqueue"


@dataclass(frozen=True, slots=True)
class Address:
    """An entity by its path in lower case, its dead letters, or where requests about either are answered."""

    entity: str
    dead: bool = False
    management: bool = False

    @property
    def node(self) -> str:
        """The name by which a request and its answer find each other; empty where messages go."""
        if self.entity == CBS:
            return CBS
        return f"{self.entity}/{DEAD if self.dead else ''}/{MANAGEMENT}" if self.management else ""


def address_of(text: str | None) -> Address:
    """What a link's address names. Raises `AmqpError` where there is none."""
    path = re.sub(r"^[a-z]+://[^/]*/", "", text or "").strip("/").lower()
    if not path:
        raise AmqpError(INVALID_FIELD, "a link without an address")
    path, management = _without(path, MANAGEMENT)
    path, dead = _without(path, DEAD)
    return Address(path, dead, management)


def _without(path: str, last: str) -> tuple[str, bool]:
    shorter = path.removesuffix(f"/{last}")
    return shorter, shorter != path
