"""From a URL to the backend that serves it.

Owns the lookup by scheme, the reading of file URLs, where such files may not be, and the hiding of secrets. Nothing
of a backend is imported before its scheme is asked for.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from leasehold.config import check_given
from leasehold.errors import ConfigError, MissingDependency, UsageError
from leasehold.network_files import ONE_KERNEL, mount_of, used_by_one_kernel
from leasehold.settings.names import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_EXTRAS = {"pyarrow": "log", "psycopg": "postgres", "redis": "redis", "azure": "azure", "confluent_kafka": "kafka"}
_EXTRAS_OF = {"servicebus": "servicebus"}
"""Of schemes whose driver's package begins like that of others."""


def check_scheme(url: str, field: str, builtin: Mapping[str, str], group: str) -> str:
    """The scheme of `url`, if a backend serves it; `field` names the setting in the error. Loads nothing."""
    check_given(field, url)
    scheme, found, _ = url.partition("://")
    if found and scheme in builtin:
        return scheme
    if scheme not in _of_packages(group):
        _read_points.cache_clear()  # a package may have been installed since
    known = sorted({*builtin, *_of_packages(group)})
    if not found or scheme not in known:
        named = re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,30}", scheme)
        schemes = ", ".join(f"{name}://" for name in known)
        rule = f"a URL that begins with {'one of ' if len(known) > 1 else ''}{schemes}"
        meant = nearest(scheme, known, behind="://")
        remedy = meant or "Correct the URL"
        if found and named and not meant:
            remedy = f"There is no backend for {scheme}:// here"
        if not found and (begun := re.match(r"[A-Za-z]+(?=[:/])", url)) and begun[0] in known:
            remedy = f"Write {begun[0]}:// with a colon and two slashes"
        raise ConfigError(field, masked(url), rule, remedy)
    return scheme


def load_backend(url: str, kind: str, builtin: Mapping[str, str], group: str) -> Callable[..., Any]:
    """The opener for the scheme of `url`; `kind` (`store`, `hub`, `sink`) names it in errors."""
    scheme = check_scheme(url, kind, builtin, group)
    if scheme not in builtin:
        return _of_others(url, kind, _of_packages(group)[scheme])
    module, _, name = builtin[scheme].partition(":")
    try:
        opener: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _EXTRAS:
            raise MissingDependency(f"the {kind} {masked(url)}", _EXTRAS_OF.get(scheme, _EXTRAS[missing])) from error
        raise
    return opener


def _of_packages(group: str) -> Mapping[str, EntryPoint]:
    """What packages of others name in an entry point group: by name, the first on the path."""
    return _read_points(group, tuple(sys.path))


@functools.lru_cache(maxsize=16)
def _read_points(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Looking takes 10 to 20 ms, since Python reads a file of each package. `path` is `sys.path` as it is now."""
    from importlib.metadata import entry_points

    return {point.name: point for point in reversed(tuple(entry_points(group=group)))}


def _of_others(url: str, kind: str, point: EntryPoint) -> Callable[..., Any]:
    """The opener that a package of others names. Raises `UsageError` where Python cannot import it."""
    try:
        opener: Callable[..., Any] = point.load()
    except (ImportError, AttributeError) as error:
        package = "a package" if point.dist is None else f"the package {point.dist.name}"
        raise UsageError(
            f"the {kind} {masked(url)} is served by {point.value} of {package}, which cannot be loaded: {error}. "
            "Install what that package needs, or correct its entry point"
        ) from error
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
            kind, masked(url), f"a {scheme} URL names a file and takes no options", f"{hint} (? is %3F, # is %23)"
        )
    if parts.netloc or not path:
        raise ConfigError(
            kind,
            masked(url),
            f"a {scheme} URL is {scheme}:///relative/path or {scheme}:////absolute/path",
            _without_host(scheme, parts.netloc, parts.path) if parts.netloc else "Name a file",
        )
    return base / path


def _without_host(scheme: str, host: str, path: str) -> str:
    """The remedy for a file URL with a host, which is not repeated where it may hold a password."""
    if "@" in host or ":" in host:
        return f"A file has no host, user or password: {scheme}:///PATH"
    return f"Did you mean {scheme}:///{host}{path}?"


def local_file_of(url: str, base: Path, kind: str, engine: str = "SQLite") -> Path:
    """As `file_of`, for a database: refuses one that other kernels may write too, as far as the system tells.

    `engine` is what the error calls whoever locks the file.
    """
    path = file_of(url, base, kind)
    mount = mount_of(path.absolute())
    if mount and mount.network:
        raise ConfigError(
            kind,
            url,
            f"the file is on a network file system ({mount.kind}), where neither {engine}'s locks nor its log can be "
            "trusted",
            "Put it on a disk of this host; for several hosts name a store and a hub that they share",
        )
    if mount and mount.passed_on and not used_by_one_kernel(path.absolute(), os.environ):
        raise ConfigError(
            kind,
            url,
            f"{mount.place} is a file system ({mount.kind}) that other kernels may use too, such as the host of this "
            f"container or virtual machine, and neither {engine}'s locks nor its shared memory reach them",
            "Put the file on a disk of this system; for containers, on a named volume, not in a folder of the host. If "
            f"one kernel alone uses it, {ONE_KERNEL}={path.absolute().parent} in the environment says so",
        )
    return path


def masked(url: str) -> str:
    """The URL with user, password and query values hidden, fit for messages and logs.

    What cannot be told apart from a part of a password is hidden too: text that is no URL but has marks of one, and all
    behind the scheme where an @ comes after a ? or # that a password may have.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return "***" if re.search(r"[@:;=&?#]", url) else url
    if scheme in FILE_SCHEMES and rest.startswith("/"):  # a path may have an @ in it, and no options
        path = re.split(r"[?#]", rest, maxsplit=1)[0]
        return url if path == rest else f"{scheme}://{path}{rest[len(path)]}***"
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return "***"
    place, mark, query = (*re.split(r"([?#])", rest, maxsplit=1), "", "")[:3]
    if "@" in query and not _is_query(scheme, place, mark, query):
        return f"{scheme}://***"
    _, at, host = place.rpartition("@")
    if not at and any(not _HOST.fullmatch(each) for each in host.partition("/")[0].split(",")):
        host = "***" + "".join(host.partition("/")[1:])  # a user and a password, and the host forgotten
    hidden = f"{scheme}://{'***@' if at else ''}{host}{mark}{'***' if mark == '#' and query else query}"
    parts = hidden.split("&")
    kept = next((place for place, part in enumerate(parts) if _SECRET.search(part)), len(parts)) + 1
    hidden = "&".join([*parts[:kept], *("***" for _ in parts[kept:])])  # what follows a secret may be the rest of it
    hidden = re.sub(r"(?<=[?&;])([^=&;]+)=[^&;]*", r"\1=***", hidden)
    return re.sub(r"(?<=[?&;])[^=&;]+(?=[&;]|$)", "***", hidden)  # what has no name may be the rest of a secret


def _is_query(scheme: str, place: str, mark: str, query: str) -> bool:
    """Whether an @ behind this mark is in a value of a query, and not the end of a password with the mark in it."""
    if mark == "#" or not all(re.match(r"[\w.]+=", part) for part in query.split("&")):
        return False
    if scheme not in _WITHOUT_USER:
        return "@" in place
    hosts, slash, _ = place.partition("/")
    return bool(slash) and all(re.fullmatch(r"[^:]*(:\d*)?", host) for host in hosts.split(","))


def is_host(text: str) -> bool:
    """Whether this is a host, with or without a port, and not a user and a password behind which it was forgotten."""
    return bool(re.fullmatch(r"(?:\[[^\[\]\s]+\]|[^\[\]:@\s]+)(?::[0-9]+)?", text))


def unknown_option(option: str, before: Iterable[str], secrets: Collection[str]) -> str:
    """How an option that nobody knows is named in a message, after those `before` it in the same query.

    Behind a secret it is not shown: it may be the rest of it.
    """
    if any(name in secrets for name in before):
        return "what follows the & behind a password or key (not shown: it may be a part of it, where & is %26)"
    return option


_SECRET = re.compile(r"(?:pass\w*|secret|token|pem|connection_string\w*|accesskey|signature|\bsig)=", re.IGNORECASE)
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::[0-9]*)?")
"""A host with or without a port."""
_WITHOUT_USER = ("kafka", "eventhubs", "servicebus", "azblob", "aztable", "azschemas")
"""Schemes whose URL has no user before the host."""


def say_unverified(logger: logging.Logger, shown: str, setting: str) -> None:
    """Say in the log that this `setting` switches off what TLS is for: to know who answers. Once for each of them."""
    say_once(
        logger,
        shown,
        f"{setting}: who answers is not verified, so that whoever is on the way there may read and change everything. "
        "Name the authority that signed the server's certificate instead",
    )


def say_once(logger: logging.Logger, shown: str, what: str) -> None:
    """Warn in the log of what is amiss with the backend at `shown`, once in this process."""
    if (shown, what) not in _said:
        _said.add((shown, what))
        logger.warning("%s: %s", shown, what)


_said: set[tuple[str, str]] = set()

FILE_SCHEMES = ("log", "sqlite")
"""Schemes of our own whose URL names a file of this host."""
FILE_SCHEMES_OF_OTHERS = "leasehold.file_schemes"
"""The entry point group in which a package names those of its schemes whose URLs are `scheme:///PATH`."""


def names_file(url: str) -> bool:
    """Whether this is the URL of a file of this host, by its scheme: our own, or one that a package has named so."""
    scheme = url.partition("://")[0]
    return scheme in FILE_SCHEMES or scheme in _of_packages(FILE_SCHEMES_OF_OTHERS)


def absolute(url: str, base: Path, kind: str) -> str:
    """The same URL, independent of a base: a file URL with the absolute path, any other as it is."""
    if not names_file(url):
        return url
    scheme = url.partition("://")[0]
    return f"{scheme}:///{quote(str(file_of(url, base, kind).absolute()))}"
