"""The command `leasehold`: its subcommands, and what a failure looks like.

Owns exit codes and the printing of errors: 0 done; 1 a `LeaseholdError`, or anything else that went wrong;
2 a command line that cannot be read; 130 Ctrl-C. An error is one message on stderr, with its notes below
it; the traceback comes with `--debug`. With `--log-format json` it is one record of the log. A subcommand is imported
when it is called and not before, so that `leasehold --help` is quick and works without any extra.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import click

from leasehold._version import __version__
from leasehold.cli.options.logs import logger, logs_json
from leasehold.cli.options.standard_files import open_standard_files
from leasehold.cli.stop_signals import end_at_next_interrupt, raise_at_interrupt
from leasehold.errors import LeaseholdError, UsageError
from leasehold.installation import command_for_kit
from leasehold.logs import of_error
from leasehold.printable import drop_unread_output, printable_lines

KIT = "leasehold.commands"
"""The entry point group in which the test kit, a package of its own, names its commands."""

COMMANDS: Mapping[str, tuple[str, str]] = {
    "send": ("leasehold.cli.send:send", "Send the rows of files to a hub, as events."),
    "run": ("leasehold.cli.run:run", "Run a pipeline, on Spark or without."),
    "status": ("leasehold.cli.status:status", "Show who holds which partition, and how far it has come."),
    "metrics": (
        "leasehold.cli.metrics:metrics",
        "Serve the metrics of pipelines to Prometheus, from outside of what runs.",
    ),
    "dashboard": ("leasehold.cli.dashboard:dashboard", "Show what pipelines do, as a page in a browser."),
    "reset": ("leasehold.cli.reset:reset", "Set how far a pipeline has come, while it is not running."),
    "skip": ("leasehold.cli.skip:skip", "Have an event left out that its partition cannot get past."),
    "aside": ("leasehold.cli.aside:aside", "List what is set aside, try it again, drop it, or export it to mend it."),
    "rejected": (
        "leasehold.cli.aside:rejected",
        "List the rejected events of a pipeline, try them again, or drop them.",
    ),
    "parked": (
        "leasehold.cli.aside:parked",
        "List the events that wait for their handler, try them now, or drop them.",
    ),
    "outbox": (
        "leasehold.cli.aside:outbox",
        "List the emitted events that their hub refuses, send them again, or drop them.",
    ),
    "dead-letters": (
        "leasehold.cli.aside:dead_letters",
        "List the dead letters of a queue, send them again, or drop them.",
    ),
    "bridge": (
        "leasehold.cli.queues.bridge:bridge",
        "Drain a queue into a hub, each message completed after it is there.",
    ),
    "check": ("leasehold.cli.check:check", "Look at all that a pipeline needs, before its first start."),
    "forget": ("leasehold.cli.forget:forget", "Remove what is kept of an entity beside the table; its row stays."),
    "init": ("leasehold.cli.init:init", "Make what a pipeline or a store needs, a topic or a log."),
    "checkpoints": (
        "leasehold.cli.checkpoints.command:checkpoints",
        "Take checkpoints out of a store, or put them in.",
    ),
    "leases": ("leasehold.cli.leases:leases", "Show who holds which lease, or free one whose holder is gone."),
    "serve": (
        KIT,
        "Serve an embedded log or queues to Azure's clients, a Kafka, a registry or a Postgres.",
    ),
    "simulate": (KIT, "Simulate a fleet: replay a seed, or measure and draw a scenario."),
    "demo": ("leasehold.cli.demo.command:demo", "Run the main job on a million real events, and check the result."),
}
"""Each subcommand: where it is (a module and a name, or `KIT`), and the first sentence of its help."""


class App(click.Group):
    """A group whose commands are named in `COMMANDS` and imported late."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        place = COMMANDS[cmd_name][0]
        if place == KIT:
            return _of_kit(cmd_name)
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            raise_at_interrupt()
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, click.Abort) as interrupt:
            end_at_next_interrupt()
            _print(ctx, "interrupted", interrupt)
            ctx.exit(130)
        except LeaseholdError as error:
            _print(ctx, str(error), error)
            ctx.exit(1)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # whoever read our output has left (`leasehold status … | head`); click ends quietly
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                _print(
                    ctx, f"the output cannot be written: {error.strerror}. The command may have done its work", error
                )
                ctx.exit(1)
            text = f"{type(error).__name__}: {error}\nThis is not an error that was foreseen: --debug shows where."
            _print(ctx, text, error)
            ctx.exit(1)


def _of_kit(name: str) -> click.Command:
    """The command that the test kit has under this name. Raises `UsageError` where the kit is not installed."""
    from importlib.metadata import entry_points

    for point in entry_points(group=KIT, name=name):
        command: click.Command = point.load()
        return command
    raise UsageError(f"leasehold {name} is a command of the test kit, which is not installed: {command_for_kit()}")


def _print(ctx: click.Context, text: str, error: BaseException) -> None:
    if logs_json(ctx):
        whole = "\n".join((text, *getattr(error, "__notes__", ())))
        logger.error("%s", whole, exc_info=error if ctx.params.get("debug") else None, extra=of_error(error))
        return
    if ctx.params.get("debug"):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    for line in (f"leasehold: {text}", *getattr(error, "__notes__", ())):
        click.echo(printable_lines(line), err=True)


@click.command(
    cls=App,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`leasehold COMMAND --help` explains a command, with an example. Something stands still? `leasehold status "
    "PIPELINE.toml` says what, and changes nothing.",
)
@click.option("--debug", is_flag=True, envvar="LEASEHOLD_DEBUG", help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="leasehold")
def app(debug: bool) -> None:
    """Several Spark applications, one partitioned event stream, one correct table of entities."""


def main() -> None:
    """Run the command line of this process, and exit."""
    open_standard_files()
    try:
        app(prog_name="leasehold")
    except OSError as error:  # what a command raises is printed by `App`: this is help or a version that is not written
        with contextlib.suppress(OSError):
            click.echo(f"leasehold: the output cannot be written: {error.strerror or error}", err=True)
        sys.exit(1)
    finally:
        drop_unread_output()
        end_at_next_interrupt()  # what is left is Python's own end


if __name__ == "__main__":
    main()
