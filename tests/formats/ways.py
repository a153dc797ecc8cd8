"""The two ways in which bodies are read, for modules whose tests hold of both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module", params=["as columns", "one by one"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """A few bodies are read one by one, and here as columns too, as far as they can be."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "as columns":
            patch.setattr("leasehold.formats.format_readers._FEW", 0)
            patch.setattr("leasehold.formats.typed.columns._FEW", 0)
        yield
