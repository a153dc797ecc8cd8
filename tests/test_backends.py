"""From a URL to a backend: file URLs, secrets, bad URLs, packages that are missing, backends of others."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.backends import FILE_SCHEMES, absolute, file_of, load_backend, masked, names_file
from leasehold.errors import ConfigError, MissingDependency, UsageError
from leasehold.hubs import open_hub
from leasehold.installation import command_for
from leasehold.model import ConsumerGroup
from leasehold.stores import open_store
from leasehold.stores.memory.store import MemoryStore

BASE = Path("/base")


# File URLs


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///leasehold.db", "/base/leasehold.db"),
        ("sqlite:///sub/folder/x.db", "/base/sub/folder/x.db"),
        ("sqlite:///./x.db", "/base/x.db"),
        ("sqlite:///../x.db", "/base/../x.db"),
        ("sqlite:////absolute/x.db", "/absolute/x.db"),
        ("log:////x.db", "/x.db"),
        ("log:///with%20space%20%3F%23%25.db", "/base/with space ?#%.db"),
        ("log:///with space é.db", "/base/with space é.db"),
    ],
)
def test_three_slashes_are_relative_and_four_absolute(url: str, path: str) -> None:
    assert file_of(url, BASE, "store") == Path(path)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("sqlite://leasehold.db", "Did you mean sqlite:///leasehold.db?"),
        ("sqlite://folder/leasehold.db", "Did you mean sqlite:///folder/leasehold.db?"),
        ("log:///", "Name a file"),
        ("log://", "Name a file"),
    ],
)
def test_no_file_urls(url: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        file_of(url, BASE, "source.hub")
    assert (refused.value.field, refused.value.remedy) == ("source.hub", hint)
    scheme = url.partition(":")[0]
    assert f"{scheme}:///relative/path or {scheme}:////absolute/path" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("log:///x.db?mode=ro", "Leave out what follows the path (? is %3F, # is %23)"),
        ("sqlite:///x.db#fragment", "Leave out what follows the path (? is %3F, # is %23)"),
        ("log:///x.db?mirror_offsets=true", "Only kafka:// mirrors progress (? is %3F, # is %23)"),
    ],
)
def test_file_urls_take_no_options(url: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match="names a file and takes no options") as refused:
        file_of(url, BASE, "source.hub")
    assert refused.value.remedy == remedy


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("sqlite:///leasehold.db", "sqlite:////base/leasehold.db"),
        ("sqlite:////absolute/x.db", "sqlite:////absolute/x.db"),
        ("log:///100%25 sure%3F.db", "log:////base/100%25%20sure%3F.db"),
        ("log:///a%23b c.db", "log:////base/a%23b%20c.db"),
        ("log:///%2541.db", "log:////base/%2541.db"),
        ("memory://x", "memory://x"),
        ("redis://:secret@host/0", "redis://:secret@host/0"),
    ],
)
def test_made_independent_of_the_base(url: str, whole: str) -> None:
    assert absolute(url, BASE, "store") == whole
    assert absolute(whole, Path("/elsewhere"), "store") == whole


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)


@given(NAMES | st.text("%?#& a4", min_size=1), st.sampled_from(FILE_SCHEMES))
def test_every_name_survives_being_made_absolute(name: str, scheme: str) -> None:
    url = f"{scheme}:///folder/{quote(name)}"
    path = file_of(url, BASE, "store")
    assert path == BASE / "folder" / name
    again = absolute(url, BASE, "store")
    assert file_of(again, Path("/elsewhere"), "store") == path
    assert absolute(again, Path("/elsewhere"), "store") == again


def test_a_base_that_is_relative_counts_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "50% #1?"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert file_of(absolute("log:///x.db", Path(), "hub"), BASE, "hub") == folder / "x.db"


def test_relative_to_the_working_directory_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///x.db")
    store.list_checkpoints(ConsumerGroup("n", "h"))
    assert (tmp_path / "x.db").exists()


# Secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@host:6379/0", "redis://***@host:6379/0"),
        ("postgres://user:secret@host/db", "postgres://***@host/db"),
        ("postgres://host/db?user=me&password=secret", "postgres://host/db?user=***&password=***"),
        ("postgres://u:secret@host/db?sslpassword=secret", "postgres://***@host/db?sslpassword=***"),
        (
            "eventhubs://Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=secret==",
            "eventhubs://Endpoint=sb://x/;SharedAccessKeyName=***;SharedAccessKey=***",
        ),
        ("postgres://user:se@cret@host/db", "postgres://***@host/db"),
        ("postgres://user:se/cret@host:5432/db", "postgres://***@host:5432/db"),
        ("redis://:@/se@/cret//@host:6379/0", "redis://***@host:6379/0"),
        ("postgres://user:se@cret@host/db?user=me@home&password=x", "postgres://***@host/db?user=***&password=***"),
        ("kafka://host/t?sasl_password=a&secret&b=c", "kafka://host/t?sasl_password=***&***&***"),
        ("kafka://host/t?sasl_password=my secret", "kafka://host/t?sasl_password=***"),
        ("postgresql://u:12#secret@host/db", "postgresql://***"),
        ("redis://:#secret@host/0", "redis://***"),
        ("redis://:12?secret@host/0", "redis://***"),
        ("redis://:a@b#secret@host/0", "redis://***"),
        ("postgresql://host/db?user=secret@home", "postgresql://***"),
        ("redis://host/0#secret", "redis://host/0#***"),
        ("kafka://host:1,b:2/t?sasl_username=secret@home&x=1", "kafka://host:1,b:2/t?sasl_username=***&x=***"),
        ("kafka://u:12?secret@host/t", "kafka://***"),
        ("kafka://u:x/y?a=secret@host/t", "kafka://***"),
        ("postgresql:user:secret@host/db", "***"),
        ("postgresql//user:secret@host/db", "***"),
        ("redis:/:secret@host/0", "***"),
        ("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=secret==", "***"),
        ("user:secret@postgresql://host/db", "***"),
        ("flights.db", "flights.db"),
        ("kafka://h/t?client_id=a&sasl.password=x&secret=y", "kafka://h/t?client_id=***&sasl.password=***&***"),
        ("azblob://a/c?sv=1&sig=x&secret=y", "azblob://a/c?sv=***&sig=***&***"),
        ("memory://name", "memory://name"),
        ("", ""),
    ],
)
def test_secrets_are_hidden(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert "secret" not in shown


@pytest.mark.parametrize(
    ("rest", "shown"),
    [
        ("USER:PASSWORD/db", "***/db"),
        ("USER:PASSWORD", "***"),
        (":PASSWORD/0", "***/0"),
        ("USER:12ab/db?sslmode=require", "***/db?sslmode=***"),
        ("USER:PASS,WORD/db", "***/db"),
        ("USER:PASS:5432/db", "***/db"),
        *((each, each) for each in ("host/db", "host:5432/db", "h1:5432,h2/db", "[::1]:6379/0", "[::1]/0", "/db", "")),
    ],
)
@pytest.mark.parametrize("scheme", ["postgresql", "redis", "kafka", "eventhubs", "azblob"])
def test_a_user_and_a_password_with_the_host_forgotten_are_hidden(scheme: str, rest: str, shown: str) -> None:
    assert masked(f"{scheme}://{rest}") == f"{scheme}://{shown}"


@given(st.text(st.characters(exclude_characters="?#", exclude_categories=["Z", "C"])))
def test_no_part_of_a_password_is_shown(password: str) -> None:
    assert masked(f"postgres://user:{password}@host/db?password=x") == "postgres://***@host/db?password=***"


@pytest.mark.parametrize("path", ["home/me@work/x.db", "/home/me@work/x.db", "a=b.db", "a;b=c&d=e.db", "a%3Fb=c.db"])
@pytest.mark.parametrize("scheme", FILE_SCHEMES)
def test_file_urls_hold_no_secrets_and_are_shown_as_they_are(scheme: str, path: str) -> None:
    assert masked(f"{scheme}:///{path}") == f"{scheme}:///{path}"


@pytest.mark.parametrize(
    "url",
    [
        *("nosuch://user:secret@host/x?password=secret", "x://user:secret@host/x;key=secret"),
        *("postgresql:user:secret@host/db", "redis:/:secret@host/0", "user:secret@postgresql://host/db"),
        "Endpoint=sb://ns/;SharedAccessKeyName=n;SharedAccessKey=secret",
    ],
)
def test_errors_show_no_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["postgresql:user:p@host/db", "postgresql:/u:p@host/db", "postgresql//u:p@host/db"])
def test_forgotten_slashes_are_said(url: str) -> None:
    with pytest.raises(ConfigError, match="Write postgresql:// with a colon and two slashes"):
        open_store(url)


# Schemes


@pytest.mark.parametrize(
    "url", ["", "x", "sqlite", "sqlite:x.db", "sqlite:/x.db", "nosuch://x", "SQLITE:///x.db", "://x"]
)
def test_no_store_urls(url: str) -> None:
    with pytest.raises(ConfigError, match=r"one of .*memory://, .*sqlite://") as refused:
        open_store(url)
    assert refused.value.field == "store"


def test_no_hub_urls() -> None:
    with pytest.raises(ConfigError, match="a URL that begins with one of eventhubs://, kafka://, log://") as refused:
        open_hub("sqlite:///x.db")
    assert refused.value.field == "hub"


@pytest.mark.parametrize(
    ("package", "extra"),
    [
        ("pyarrow", "log"),
        ("psycopg", "postgres"),
        ("redis", "redis"),
        ("azure.storage.blob", "azure"),
        ("confluent_kafka", "kafka"),
    ],
)
def test_a_missing_package_names_the_extra(
    package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"needs_{extra}.py").write_text(f"import {package}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, package.partition(".")[0], None)  # as if it were not installed
    with pytest.raises(MissingDependency) as missing:
        load_backend("x://user:secret@host", "store", {"x": f"needs_{extra}:open"}, "leasehold.tests")
    assert str(missing.value).endswith(command_for(extra))
    assert "the store x://***@host needs" in str(missing.value)
    assert isinstance(missing.value, UsageError)


def test_a_module_of_ours_that_is_missing_is_a_bug_and_comes_out() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"leasehold\.stores\.nowhere"):
        load_backend("x://y", "store", {"x": "leasehold.stores.nowhere:open"}, "leasehold.tests")


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, points: str) -> None:
    """A package `theirs` that is installed, as far as Python can tell."""
    (tmp_path / "theirs.py").write_text(module)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    importlib.invalidate_caches()


def test_backends_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = (
        "from leasehold.stores.memory.store import MemoryStore\n"
        "class Theirs(MemoryStore):\n"
        "    def __init__(self, url, base, timeout):\n"
        "        super().__init__()\n"
        "        self.opened = url, str(base), timeout\n"
    )
    install(tmp_path, monkeypatch, module, "[leasehold.stores]\ntheirs = theirs:Theirs\n")
    store = open_store("theirs://x", base=BASE, timeout=31.5)
    assert isinstance(store, MemoryStore)
    assert vars(store)["opened"] == ("theirs://x", "/base", 31.5)
    with pytest.raises(ConfigError, match=r"memory://, .*sqlite://, theirs://"):
        open_store("nosuch://x")


def test_a_package_that_is_installed_while_the_program_runs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook: the error says that there is no backend, and the next cell installs it, on the same path."""
    monkeypatch.syspath_prepend(tmp_path)
    path = list(sys.path)
    assert absolute("theirs:///x", BASE, "store") == "theirs:///x"
    with pytest.raises(ConfigError, match="no backend for theirs://"):
        open_store("theirs:///x", base=BASE)
    module = "def opened(url, base, timeout):\n    return url\n"
    install(
        tmp_path,
        monkeypatch,
        module,
        "[leasehold.stores]\ntheirs = theirs:opened\n[leasehold.file_schemes]\ntheirs = theirs\n",
    )
    monkeypatch.setattr(sys, "path", path)
    assert str(open_store("theirs:///x", base=BASE)) == "theirs:///x"
    assert absolute("theirs:///x", BASE, "store") == "theirs:////base/x"


def test_for_urls_of_ours_python_does_not_read_the_metadata_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 10 to 20 ms, and a command opens several: a third of the time of `leasehold status`."""
    monkeypatch.setattr("importlib.metadata.entry_points", None)
    monkeypatch.syspath_prepend("a path that nobody has looked at")
    open_store("memory://x")
    assert absolute("sqlite:///x.db", BASE, "store") == "sqlite:////base/x.db"


@pytest.mark.parametrize("module", ["import no_driver_of_theirs\n", "Other = None\n"])
def test_a_backend_of_others_that_cannot_be_loaded_is_named(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, module, "[leasehold.stores]\ntheirs = theirs:Theirs\n")
    with pytest.raises(UsageError) as refused:
        open_store("theirs://user:secret@x")
    assert "the store theirs://***@x is served by theirs:Theirs of the package theirs, which cannot be" in str(
        refused.value
    )


def test_a_package_of_others_says_which_of_its_urls_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a path in a pipeline file counts from the file's folder, and not from the working directory."""
    assert absolute("theirs:///x.db", BASE, "sink") == "theirs:///x.db"
    install(tmp_path, monkeypatch, "", "[leasehold.file_schemes]\ntheirs = theirs\n")
    assert absolute("theirs:///x.db", BASE, "sink") == "theirs:////base/x.db"
    assert absolute("theirs2:///x.db", BASE, "sink") == "theirs2:///x.db"
    assert names_file("theirs:///x.db")
    assert not names_file("postgresql:///x")


def test_a_backend_is_imported_only_when_its_scheme_is_asked_for() -> None:
    script = (
        "import sys\n"
        "before = set(sys.modules)\n"  # whatever measures coverage has modules of its own there
        "import leasehold.stores, leasehold.hubs\n"
        "assert 'leasehold.stores.sqlite.store' not in sys.modules\n"
        "leasehold.stores.open_store('memory://x')\n"
        "assert 'leasehold.stores.memory.store' in sys.modules\n"
        "named = {'leasehold.stores.sqlite.store', 'sqlite3', 'pyarrow', 'pytest'}\n"
        "assert not named & (set(sys.modules) - before)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///x.db?password=SECRET", "sqlite:///x.db?***"),
        ("log:////data/x#SECRET", "log:////data/x#***"),
        ("sqlite:////home/me@work/x.db", "sqlite:////home/me@work/x.db"),
        ("sqlite://u:SECRET@h/x", "sqlite://***@h/x"),
    ],
)
def test_a_secret_in_the_url_of_a_file_is_not_shown(url: str, shown: str, tmp_path: Path) -> None:
    assert masked(url) == shown
    if "SECRET" in url:
        with pytest.raises(ConfigError) as refused:
            file_of(url, tmp_path, "store")
        assert "SECRET" not in str(refused.value)
