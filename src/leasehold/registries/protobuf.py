"""A schema of Protobuf, as somebody else wrote it, to one text that needs no other.

Owns the three forms that a schema has: a `.proto` file, a `FileDescriptorSet` as `protoc --descriptor_set_out` and
`buf build` write it, and one `FileDescriptorProto`, as Confluent's Python client registers it; these two in base64.
`compiled` makes a set of each, with the file itself last, behind all that it imports: files that come with it, that are
in the set, or that Google's and Confluent's packages have.

A `.proto` file is compiled by `protoc`, in a process of its own: it is C++, and is given what others wrote. That
process finds no code in the folder of the files, and their names are checked: they may come from a registry. What the
machine lacks (room for files, memory, time) says nothing of a schema: it raises `RegistryUnavailable`, which is waited
for.
"""

from __future__ import annotations

import base64
import functools
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from leasehold.errors import ConfigError, MissingDependency, RegistryUnavailable
from leasehold.printable import printable, shortened
from leasehold.registries.contract import Files

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_FOLDER = "files"
_IMPORTS = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?["']([^"'\n]+)["']\s*;""")
_NAME = re.compile(r"(?!.*(^|/)\.{1,2}(/|$))[\w.+-][\w.+/-]*", re.ASCII)
"""What the file of a schema may be called: a path within a folder."""
_ELSEWHERE = {"confluent/": "confluent_kafka.schema_registry.", "google/protobuf/": "", "google/type/": ""}
"""Files that need not come with a schema, by the packages that have them."""
_LOGGED = re.compile(r"^(WARNING: |[IWE]\d{4} ).*\n", re.MULTILINE)
"""What protoc says of itself."""
_OWN = ("known.set", "all.set")
"""What protoc is given and what it writes: an error in them is none of the schema."""
_LONGEST = 200  # characters of the name of a file
_COMPILED_IN = 60.0  # seconds
_SHOWN = 200


@functools.lru_cache(maxsize=256)
def compiled(text: str, files: Files = ()) -> str:
    """A set of descriptors, in base64, of the schema of this text and of all that it imports.

    Raises `ConfigError` for what is not a schema, `MissingDependency` without the packages, `RegistryUnavailable`.
    """
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool
    except ImportError as error:
        raise MissingDependency("reading Protobuf", "protobuf") from error
    try:
        found, main = _descriptors(text, files)
        order = [*(name for name in _in_order(found) if name != main), main]
        pool = DescriptorPool()
        for name in order:
            pool.AddSerializedFile(found[name].SerializeToString())
        whole = FileDescriptorSet(file=[found[name] for name in order])
        return base64.b64encode(whole.SerializeToString()).decode()
    except MissingDependency:
        raise
    except (OSError, MemoryError, subprocess.TimeoutExpired) as error:
        raise RegistryUnavailable(f"a schema of Protobuf cannot be compiled at the moment: {error!r}") from error
    except Exception as error:  # noqa: BLE001 -- of a library that raises what it will, on what others wrote
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        said = printable(shortened(f"{kind}{error}", _SHOWN))
        remedy = "Give a .proto file, or a set of descriptors: protoc --include_imports --descriptor_set_out=FILE"
        rule = f"not a schema of Protobuf that can be read ({said})"
        raise ConfigError("writer_schema", printable(shortened(text, _SHOWN)), rule, remedy) from None


def registered_text(text: str) -> str:
    """The schema of this text as Confluent's serializers register it: the file itself, as descriptors in base64.

    All clients can read that, where some take a `.proto` file only from a registry that compiles it for them. Raises
    what `compiled` raises, and `ConfigError` where the file imports others that no registry has by itself.
    """
    file = _serialized(compiled(text))[-1]
    if others := [name for name in file.dependency if not name.startswith(tuple(_ELSEWHERE))]:
        remedy = "Register it by a program of yours, and write by a schema that needs no other"
        raise ConfigError("writer_schema", None, f"it imports {others[0]}, which is not registered with it", remedy)
    return base64.b64encode(file.SerializeToString()).decode()


def _descriptors(text: str, files: Files) -> tuple[dict[str, FileDescriptorProto], str]:
    """All files by name, and the name of the one that the text is."""
    names = {name for name, _ in files}
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    for name in names:
        if not _NAME.fullmatch(name) or name in _OWN or len(name) > _LONGEST:
            raise ValueError(f"it refers to a file that is called {name!r}")
        if name in folders:
            raise ValueError(f"it refers to {name}, and to another file in a folder of that name")
    main = next(name for n in count() if (name := f"schema{n or ''}.proto") not in names | folders)
    sources: dict[str, str] = {}
    found: dict[str, FileDescriptorProto] = {}
    for name, one in files:
        read = _serialized(one)
        if len(read) == 1:  # its own name is another where it was registered alone
            read[0].name = name
        found.update((each.name, each) for each in read)
        if not read:
            sources[name] = one
    if read := _serialized(text):
        read[-1].name = main = read[-1].name or main  # in a set, a file stands behind those that it imports
        found.update((each.name, each) for each in read)
    else:
        sources[main] = text
    if sources:
        imports = {name for one in sources.values() for name in _IMPORTS.findall(one)}
        found.update(_compiled(sources, _with_elsewhere(found, imports)))
    return _with_elsewhere(found, {name for one in found.values() for name in one.dependency}), main


def _serialized(text: str) -> list[FileDescriptorProto]:
    """The files that a text in base64 has; none of a text that is not base64."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return []
    try:
        together = FileDescriptorSet.FromString(raw)
        if together.file and all(one.name for one in together.file):
            return list(together.file)
    except DecodeError:
        pass
    return [FileDescriptorProto.FromString(raw)]


def _with_elsewhere(files: dict[str, FileDescriptorProto], imports: Iterable[str]) -> dict[str, FileDescriptorProto]:
    """The same files, and of those that are imported the ones that packages have, with all that these import."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    every = dict(files)
    left = list(imports)
    while left:
        name = left.pop()
        package = next((module for start, module in _ELSEWHERE.items() if name.startswith(start)), None)
        module = f"{package}{name.removesuffix('.proto').replace('/', '.')}_pb2"
        if name in every or package is None or not re.fullmatch(r"[\w.]+", module) or not _is_there(module):
            continue
        every[name] = FileDescriptorProto()
        import_module(module).DESCRIPTOR.CopyToProto(every[name])
        left.extend(every[name].dependency)
    return every


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # no package of that name, or not a name
        return False


def _compiled(sources: dict[str, str], files: dict[str, FileDescriptorProto]) -> dict[str, FileDescriptorProto]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if find_spec("grpc_tools") is None:
        raise MissingDependency("reading a .proto file", "protobuf")
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in sources.items():
            path = root / _FOLDER / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (root / "known.set").write_bytes(FileDescriptorSet(file=files.values()).SerializeToString())
        command = [sys.executable, "-I", "-m", "grpc_tools.protoc", "--descriptor_set_in=known.set", f"-I{_FOLDER}"]
        result = subprocess.run(  # noqa: S603 -- no argument can be an option: each begins with the folder
            [*command, "--include_imports", "--descriptor_set_out=all.set", *(f"{_FOLDER}/{name}" for name in sources)],
            cwd=root,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILED_IN,
        )
        if result.returncode:
            said = _LOGGED.sub("", result.stderr).replace(f"{_FOLDER}/", "").strip()
            if result.returncode < 0 or said.startswith(("Traceback", *_OWN)):
                raise OSError(f"protoc ended with {result.returncode}: {said.rpartition(chr(10))[2]}")
            raise ValueError(" ".join(said.split()) or f"protoc ended with {result.returncode}")
        together = FileDescriptorSet.FromString((root / "all.set").read_bytes())
    return {one.name: one for one in together.file}


def _in_order(files: dict[str, FileDescriptorProto]) -> list[str]:
    """The names of the files, each behind what it imports. Raises `ValueError` where a file is lacking."""
    order: list[str] = []
    entered: set[str] = set()
    left = [(name, False) for name in files]
    while left:
        name, ready = left.pop()
        if ready:
            order.append(name)
        elif name not in entered:
            entered.add(name)
            if name not in files:
                raise ValueError(f"it imports {name}, which is not there")
            left.append((name, True))
            left.extend((one, False) for one in files[name].dependency)
    return order
