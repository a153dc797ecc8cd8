"""How this installation is given what it lacks: the command that a person runs.

Owns that command, for an extra of Leasehold or for its test kit. Whatever was installed from a folder, a file or a
repository is named by that, as pip records it beside the package (PEP 610, `direct_url.json`): until there is a package
index that has Leasehold, its name alone would not be found there, or be somebody else's.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "leasehold"


def command_for(extra: str) -> str:
    """What installs an extra of Leasehold."""
    return command_by(_direct_url(NAME), f"{NAME}[{extra}]")


def command_for_kit(extra: str = "") -> str:
    """What installs the test kit with an extra of its own; in a checkout it is the folder beside the product."""
    installed, wanted = _direct_url(NAME) or {}, f"{NAME}-testkit[{extra}]" if extra else f"{NAME}-testkit"
    of_folder = "dir_info" in installed
    return command_by({**installed, "url": f"{installed['url']}/testkit"} if of_folder else None, wanted)


def command_by(direct_url: Mapping[str, Any] | None, requirement: str) -> str:
    """What installs this requirement from where its package came from by this record; None is an index."""
    if direct_url is None:
        return f"pip install {shlex.quote(requirement)}"
    _, bracket, extra = requirement.partition("[")
    url = str(direct_url["url"])
    parts = urlsplit(url)
    if parts.scheme != "file":
        kind = direct_url.get("vcs_info", {}).get("vcs")
        return f"pip install {shlex.quote(f'{requirement} @ {kind}+{url}' if kind else f'{requirement} @ {url}')}"
    editable = direct_url.get("dir_info", {}).get("editable")
    return f"pip install {'-e ' if editable else ''}{shlex.quote(f'{unquote(parts.path)}{bracket}{extra}')}"


def _direct_url(package: str) -> Mapping[str, Any] | None:
    """pip's record; None where the package came from an index, or nobody knows where from."""
    from importlib.metadata import PackageNotFoundError, distribution  # 20 ms, which no command is to wait for

    try:
        found = json.loads(distribution(package).read_text("direct_url.json") or "null")
    except (PackageNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("url"), str) else None
