"""Which tests `make more` runs, and not `make test`: the dear ones, of whose promise a cheaper test is in `make test`;
and where those of `make peers` are.

Three marks say it, each where the test stands:

    @pytest.mark.more                       the test, or the class; `pytestmark = pytest.mark.more` for a whole file
    @pytest.mark.more(but=2)                all cases of the test but its first two
    @pytest.mark.more_of("test_a", …)       of a class: these tests of it, which it has from a contract

Owns what the second and the third mean. A plugin of pytest.
"""

from __future__ import annotations

from collections import Counter

import pytest

PEERS = ("tests/peers", "tests/versions")
"""Where `make peers` looks for its tests: to collect all takes each worker ten seconds."""


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks, and --random-order changes which cases are the first
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the mark from first cases that stay, and give it to those tests of a class that go."""
    cases: Counter[str] = Counter()
    for item in items:
        for mark in [each for each in item.own_markers if each.name == "more" and each.kwargs]:
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] <= mark.kwargs["but"]:
                item.own_markers.remove(mark)
        for mark in item.iter_markers("more_of"):
            _check(item, mark.args)
            if item.name.partition("[")[0] in mark.args:
                item.add_marker(pytest.mark.more)
        if item.get_closest_marker("peers") and not item.nodeid.startswith(PEERS):
            raise pytest.UsageError(f"{item.nodeid}: make peers looks into {' and '.join(PEERS)} alone. Move it there")


def _check(item: pytest.Item, names: tuple[str, ...]) -> None:
    """A name that is no test of the class would leave a dear one in `make test` without a word."""
    of_class = getattr(item, "cls", None)
    for name in names:
        if not hasattr(of_class, name):
            raise pytest.UsageError(f"more_of of {of_class}: it has no test {name!r}. Name one of its tests")
