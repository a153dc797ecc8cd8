"""From a URL to the backend that serves it.

Owns the lookup by scheme, the reading of file URLs, where such files may not be, and the hiding of secrets. Nothing
of a backend is imported before its scheme is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from leasehold.errors import ConfigError, MissingDependency
from leasehold.network_files import network_file_system

_EXTRAS = {"pyarrow": "log", "psycopg": "postgres", "redis": "redis", "azure": "azure", "confluent_kafka": "kafka"}


def check_scheme(url: str, field: str, builtin: Mapping[str, str], group: str) -> str:
    """The scheme of `url`, if a backend serves it; `field` names the setting in the error. Loads nothing."""
    scheme, found, _ = url.partition("://")
    known = sorted({*builtin, *(point.name for point in entry_points(group=group))})
    if not found or scheme not in known:
        schemes = ", ".join(f"{name}://" for name in known)
        rule = f"a URL that begins with {'one of ' if len(known) > 1 else ''}{schemes}"
        close = difflib.get_close_matches(scheme, known, 1)
        remedy = f"Did you mean {close[0]}://?" if close else "Correct the URL"
        if found and not close:
            remedy = f"There is no backend for {scheme}:// here"
        raise ConfigError(field, masked(url), rule, remedy)
    return scheme


def load_backend(url: str, kind: str, builtin: Mapping[str, str], group: str) -> Callable[..., Any]:
    """The opener for the scheme of `url`; `kind` (`store`, `hub`, `sink`) names it in errors."""
    scheme = check_scheme(url, kind, builtin, group)
    if scheme not in builtin:
        loaded: Callable[..., Any] = entry_points(group=group)[scheme].load()
        return loaded
    module, _, name = builtin[scheme].partition(":")
    try:
        opener: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _EXTRAS:
            raise MissingDependency(f"the {kind} {masked(url)}", _EXTRAS[missing]) from error
        raise
    return opener


def file_of(url: str, base: Path, kind: str) -> Path:
    """The path in a file URL: `scheme:///relative/to/base` or `scheme:////absolute`."""
    parts = urlsplit(url)
    path = unquote(parts.path).removeprefix("/")
    scheme = parts.scheme
    if path and not parts.netloc and (parts.query or parts.fragment):
        hint = (
            "Only kafka:// mirrors progress" if "mirror_offsets" in parts.query else "Leave out what follows the path"
        )
        raise ConfigError(
            kind, url, f"a {scheme} URL names a file and takes no options", f"{hint} (? is %3F, # is %23)"
        )
    if parts.netloc or not path:
        raise ConfigError(
            kind,
            url,
            f"a {scheme} URL is {scheme}:///relative/path or {scheme}:////absolute/path",
            f"Did you mean {scheme}:///{parts.netloc}{parts.path}?" if parts.netloc else "Name a file",
        )
    return base / path


def local_file_of(url: str, base: Path, kind: str) -> Path:
    """As `file_of`, for a database: refuses one on a network file system, as far as the system tells."""
    path = file_of(url, base, kind)
    if shared := network_file_system(path.absolute()):
        raise ConfigError(
            kind,
            url,
            f"the file is on a network file system ({shared}), where neither SQLite's locks nor its log can be trusted",
            "Put it on a disk of this host; for several hosts name a store and a hub that they share",
        )
    return path


def masked(url: str) -> str:
    """The URL with user, password and query values hidden, fit for messages and logs."""
    if url.partition("://")[0] in FILE_SCHEMES:
        return url
    hidden = re.sub(r"(?<=://)[^\s?#]*@", "***@", url)
    hidden = re.sub(r"(?<=[?&;])([^=&;]+)=[^&;]*", r"\1=***", hidden)
    return re.sub(r"(?<=[?&;])[^=&;]+(?=[&;]|$)", "***", hidden)  # what has no name may be the rest of a secret


FILE_SCHEMES = ("log", "sqlite")
"""Schemes whose URL names a file of this host."""


def absolute(url: str, base: Path, kind: str) -> str:
    """The same URL, independent of a base: a file URL with the absolute path, any other as it is."""
    scheme = url.partition("://")[0]
    if scheme not in FILE_SCHEMES:
        return url
    return f"{scheme}:///{quote(str(file_of(url, base, kind).absolute()))}"
