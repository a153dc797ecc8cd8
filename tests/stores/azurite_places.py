"""Places on the tests' Azurite that nobody else uses."""

from __future__ import annotations

import uuid

from tests.stores.azurite import Azurite


def azurite_url(azurite: Azurite, scheme: str) -> str:
    """A place of its own."""
    place = f"leases{uuid.uuid4().hex[:12]}"
    (azurite.make_container if scheme == "azblob" else azurite.make_table)(place)
    return azurite.url(scheme, place)
