"""Secrets from variables, and from files that variables name."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.environment import LARGEST, secret_from
from leasehold.errors import ConfigError


def test_a_variable_or_the_file_that_one_names(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b" p#ss \n wort\xc3\xa9\r\n")
    assert secret_from({"NAME": "stated"}, "NAME") == "stated"
    assert secret_from({"NAME": ""}, "NAME") == ""
    assert secret_from({"NAME_FILE": str(file)}, "NAME") == " p#ss \n worté"
    assert secret_from({"NAME": "", "NAME_FILE": str(file)}, "NAME") == " p#ss \n worté"
    assert secret_from({"NAME": "stated", "NAME_FILE": ""}, "NAME") == "stated"
    assert secret_from({"OTHER": "stated"}, "NAME") is None


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"hidden\xff", "is not UTF-8"),
        (b"hidden" * LARGEST, "more than 65,536 bytes"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_without_what_it_holds(
    tmp_path: Path, held: bytes | None, said: str
) -> None:
    file = tmp_path / "secret"
    if held is not None:
        file.write_bytes(held)
    with pytest.raises(ConfigError) as refused:
        secret_from({"NAME_FILE": str(file)}, "NAME")
    assert refused.value.field == "NAME_FILE"
    assert said in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_both_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NAME_FILE = '/x': NAME is set as well") as refused:
        secret_from({"NAME": "hidden", "NAME_FILE": "/x"}, "NAME")
    assert "hidden" not in str(refused.value)
