"""Public modules are found under their former names, with a word on where they are now."""

from __future__ import annotations

import importlib
import sys
import warnings

import pytest

from leasehold.former_names import FORMER


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


def test_another_name_is_as_unknown_as_before() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("leasehold.entities_of_nobody")
