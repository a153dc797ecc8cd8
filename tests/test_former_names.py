"""Public modules are found under their former names, with a word on where they are now."""

from __future__ import annotations

import importlib
import re
import sys
import warnings

import pytest

from leasehold.former_names import FORMER, FORMER_IN_MODULES


@pytest.mark.parametrize("former", FORMER)
def test_a_former_name_leads_to_the_new_place_and_says_so(former: str) -> None:
    for name in [name for name in sys.modules if name in FORMER]:
        del sys.modules[name]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = importlib.import_module(former)
    assert f"{former} is {FORMER[former]} now" in [str(each.message) for each in said]
    place = importlib.import_module(FORMER[former])
    names = [name for name in getattr(place, "__all__", vars(place)) if not name.startswith("_")]
    assert names
    for name in names:
        assert getattr(found, name) is getattr(place, name)


@pytest.mark.parametrize(("module", "name"), FORMER_IN_MODULES)
def test_a_former_name_in_a_module_is_the_one_at_the_new_place(module: str, name: str) -> None:
    place, now = FORMER_IN_MODULES[module, name]
    with pytest.warns(DeprecationWarning, match=re.escape(f"{module}.{name} is {place}.{now} now")):
        found = getattr(importlib.import_module(module), name)
    assert found is getattr(importlib.import_module(place), now)


@pytest.mark.parametrize("module", sorted({module for module, _ in FORMER_IN_MODULES}))
def test_a_module_with_former_names_knows_no_others(module: str) -> None:
    assert not hasattr(importlib.import_module(module), "name_of_nobody")


def test_another_name_is_as_unknown_as_before() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("leasehold.entities_of_nobody")
