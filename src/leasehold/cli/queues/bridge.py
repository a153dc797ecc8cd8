"""`leasehold bridge`: a queue is drained into a hub."""

from __future__ import annotations

import time

import click

from leasehold.backends import masked
from leasehold.cli.options.numbers import FiniteRange
from leasehold.cli.options.waiting import said_when_slow
from leasehold.cli.output import Output, Result, output_option
from leasehold.cli.stop_signals import stop_on_signals
from leasehold.errors import LeaseholdError, QueueUnavailable, Verdict
from leasehold.operations.bridging import REMEMBER, Bridge, Bridged
from leasehold.printable import counted
from leasehold.queues.keys import key_by
from leasehold.waiting import sentence

_WAIT, _PAUSE = 1.0, 2.0
_REPORT_EVERY = 10.0


@click.command(short_help="Drain a queue into a hub, each message completed after it is there.")
@click.argument("queue", metavar="QUEUE_URL")
@click.argument("hub", metavar="HUB_URL")
@click.option(
    "--key",
    "stated",
    metavar="KEY",
    required=True,
    help="What is the entity of a message: session, partition-key, message-id, or the name of a property. Events of "
    "one key go to one partition; those without go to one partition together.",
)
@click.option(
    "--most",
    type=click.IntRange(1, 1_000),
    default=100,
    show_default=True,
    metavar="N",
    help="The most messages that are locked at once.",
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="End when nothing has come for a second; else run until Ctrl-C.",
)
@click.option(
    "--wait",
    type=FiniteRange(min=0, for_ever=True),
    metavar="SECONDS",
    help="How long to wait for a queue that is away, each time; then it is an error. Default: until it is there.",
)
@click.option(
    "--remember-days",
    type=FiniteRange(min=0, min_open=True),
    default=REMEMBER / 86_400,
    show_default=True,
    metavar="DAYS",
    help="How long an embedded log knows what it has been given.",
)
@output_option
def bridge(
    queue: str,
    hub: str,
    stated: str,
    most: int,
    until_empty: bool,
    wait: float | None,
    remember_days: float,
    output: Output,
) -> None:
    """Drain a queue into a hub, each message completed after it is there.

    \b
    Example:
      leasehold bridge servicebus://NAMESPACE.servicebus.windows.net/orders log:///hubs/orders.db --key customer

    An event has the body and the application properties of its message, and beside them leasehold-queue,
    leasehold-sequence-number, leasehold-message-id and leasehold-session-id. An embedded log has each message once,
    also when this command is killed in between, or runs several times beside itself. Event Hubs and Kafka may have one
    twice: `deduplicate_by` of a pipeline drops the second.

    A message whose body is no bytes is dead-lettered, and so is one that the hub refuses, for example for its size.
    While the hub is away, what is locked stays locked. SIGTERM and Ctrl-C end it after the batch at hand.
    """
    from leasehold.hubs import open_hub
    from leasehold.queues import open_queue

    key_of = key_by(stated)
    with said_when_slow(masked(hub)):
        target = open_hub(hub)
    source = open_queue(queue)
    stop = stop_on_signals()
    total, reported = Bridged(), time.monotonic()

    def say(error: LeaseholdError) -> None:
        output.note(sentence(error, 0.0).partition(". Waiting")[0] + ". Waiting for it")

    away: set[str] = set()
    """Why the queue is away, as far as it has been said; empty while it is there."""
    away_since = 0.0

    try:
        mover = Bridge(source, target, key_of=key_of, say=say, pause=stop.wait, remember=remember_days * 86_400)
        while not stop.is_set():
            try:
                moved = mover.step(most, _WAIT)
            except QueueUnavailable as error:
                now = time.monotonic()
                away_since = away_since if away else now
                if error.verdict is not Verdict.PASSES or (wait is not None and now - away_since >= wait):
                    raise
                if str(error) not in away:
                    say(error)
                away.add(str(error))
                stop.wait(_PAUSE)
                continue
            if away:
                output.note(f"{source.url} is there again")
                away.clear()
            total += moved
            if until_empty and not moved.received:
                break
            if time.monotonic() - reported > _REPORT_EVERY and moved.received:
                reported = time.monotonic()
                output.note(_line(total))
    except LeaseholdError as error:
        error.add_note(f"By then: {_line(total)}. What was not completed stays in the queue.")
        raise
    finally:
        source.close()
        target.close()
    facts = {
        "queue": source.url,
        "hub": target.url,
        "received": total.received,
        "appended": total.appended,
        "repeated": total.repeated,
        "deadLettered": total.dead_lettered,
        "lost": total.lost,
    }
    output.show(Result(summary=f"{_line(total)}, from {source.url} to {target.url}", facts=facts))


def _line(total: Bridged) -> str:
    said = [f"{counted(total.appended, 'message')} appended"]
    for count, what in (
        (total.repeated, "that were there already"),
        (total.dead_lettered, "dead-lettered, which can be no events"),
        (total.lost, "whose lock was lost, which come again"),
    ):
        if count:
            said.append(f"{count:,} {what}")
    return ", ".join(said)
