"""`leasehold dead-letters`: a queue's dead letters are listed, shown, sent again or dropped.

Owns what is shown; `operations.dead_letters` has the rules. `leasehold dead-letters QUEUE_URL` is `dead-letters list`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leasehold.cli.options.selection import ListedByDefault, all_of, check_named, limit, shown_body
from leasehold.cli.output import Column, Output, Result, ResultTable, output_option, short
from leasehold.printable import counted, printable

if TYPE_CHECKING:
    from leasehold.operations.dead_letters import DeadLetterSelection, Done
    from leasehold.queues import Queue, QueueMessage

F = TypeVar("F", bound=Callable[..., Any])


ROWS = (
    Column("sequenceNumber", "Number", right=True, text=str),
    Column("enqueuedTime", "Enqueued"),
    Column("messageId", "Message id"),
    Column("sessionId", "Session"),
    Column("reason", "Reason", text=short),
    Column("description", "Description", text=short),
    Column("body", "Body", text=short),
    Column("bodyEncoding", "Encoding", hidden=True),
    Column("properties", "Properties", hidden=True),
)
LEFT = (Column("sequenceNumber", "Number", right=True, text=str), Column("why", "Is still there"))


def _chosen(command: F) -> F:
    """The queue and the options that choose among its dead letters."""
    options = (
        click.argument("queue", metavar="QUEUE_URL"),
        click.option(
            "--message", "numbers", type=int, multiple=True, metavar="NUMBER", help="This one, by its sequence number."
        ),
        click.option("--reason-has", metavar="TEXT", help="Those with this text in their reason or description."),
        output_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


_all = all_of("dead letters")


@click.group(
    "dead-letters", cls=ListedByDefault, short_help="List the dead letters of a queue, send them again, or drop them."
)
def dead_letters() -> None:
    """List the dead letters of a queue, send them again, or drop them.

    \b
    Example:
      leasehold dead-letters servicebus://NAMESPACE.servicebus.windows.net/orders
      leasehold dead-letters show servicebus://NAMESPACE.servicebus.windows.net/orders --message 42
      leasehold dead-letters resubmit servicebus://NAMESPACE.servicebus.windows.net/orders --reason-has "no amount"
      leasehold dead-letters drop servicebus://NAMESPACE.servicebus.windows.net/orders --message 42
    """


@dead_letters.command("list")
@limit("How many at most.")
@_chosen
def list_(queue: str, numbers: tuple[int, ...], reason_has: str | None, limit: int, output: Output) -> None:
    """List dead letters in the order of their numbers, without locking them. A body is cut here, and whole in JSON."""
    from leasehold.operations.dead_letters import listed

    with _opened(queue) as dead:
        found = listed(dead, _selection(numbers, reason_has), limit)
        url = dead.url
    records = [_record(message) for message in found]
    table = ResultTable("deadLetters", ROWS, [[record[column.key] for column in ROWS] for record in records])
    none = f"{url} has no such dead letter" if numbers or reason_has else f"{url} has no dead letters"
    summary = f"{counted(len(found), 'dead letter')} of {url}" if found else none
    summary += f", the first {limit}" if len(found) == limit else ""
    output.show(Result(summary, {"queue": url}, table if found else None, () if found else (table,)))


@dead_letters.command()
@_chosen
def show(queue: str, numbers: tuple[int, ...], reason_has: str | None, output: Output) -> None:
    """Show dead letters whole: why they are there, body and properties. At most 100."""
    from leasehold.operations.dead_letters import listed

    with _opened(queue) as dead:
        found = listed(dead, _selection(numbers, reason_has), 100)
    for message in found:
        record = _record(message)
        said = [f"message {message.sequence_number}, enqueued {record['enqueuedTime']}"]
        said += [f"{name}: {printable(str(record[key]))}" for name, key in _LINES if record[key] not in (None, {})]
        output.show(Result(summary="\n".join(said) + "\n", facts=record))


_LINES = (
    *(("reason", "reason"), ("description", "description"), ("message id", "messageId"), ("session", "sessionId")),
    *(("properties", "properties"), ("body", "body")),
)


@dead_letters.command()
@_all
@_chosen
def resubmit(queue: str, numbers: tuple[int, ...], reason_has: str | None, everything: bool, output: Output) -> None:
    """Send dead letters into their queue again, as they were first sent, and remove them.

    A copy is sent, then its dead letter is removed: ended in between, both are there. A copy has a message id of its
    own, since a queue with duplicate detection drops what comes under an id that it knows, and the first's id in the
    property leasehold-first-message-id. Sent again after such an end, a second copy has the id of the first copy: a
    queue with duplicate detection drops it, any other queue has both. Copies of a subscription's dead letters go to
    its topic, which gives them to all its subscriptions.
    """
    from leasehold.operations.dead_letters import resubmit as send_again

    _treat(queue, numbers, reason_has, everything, output, send_again, "sent again")


@dead_letters.command()
@_all
@_chosen
def drop(queue: str, numbers: tuple[int, ...], reason_has: str | None, everything: bool, output: Output) -> None:
    """Remove dead letters for good."""
    from leasehold.operations.dead_letters import drop as remove

    _treat(queue, numbers, reason_has, everything, output, remove, "dropped")


def _treat(
    queue: str,
    numbers: tuple[int, ...],
    reason_has: str | None,
    everything: bool,
    output: Output,
    treat: Callable[[Queue, DeadLetterSelection], Done],
    what: str,
) -> None:
    check_named(bool(numbers or reason_has), everything, "dead letters", "--message", "--reason-has")
    with _opened(queue) as dead:
        done = treat(dead, _selection(numbers, reason_has))
    said = f"{counted(len(done.numbers), 'dead letter')} {what}"
    said += f", {len(done.left):,} that cannot be" if done.left else ""
    table = ResultTable("left", LEFT, [list(pair) for pair in done.left])
    facts = {"numbers": list(done.numbers)}
    output.show(Result(said, facts, table if done.left else None, () if done.left else (table,)))


@contextmanager
def _opened(url: str) -> Iterator[Queue]:
    from leasehold.queues import open_queue

    queue = open_queue(url)
    dead = queue.dead_letters()
    try:
        yield dead
    finally:
        dead.close()
        queue.close()


def _selection(numbers: tuple[int, ...], reason_has: str | None) -> DeadLetterSelection:
    from leasehold.operations.dead_letters import DeadLetterSelection

    return DeadLetterSelection(frozenset(numbers) if numbers else None, reason_has)


def _record(message: QueueMessage) -> dict[str, object]:
    """A dead letter as JSON has it."""
    body, encoding = (None, "none") if message.body is None else shown_body(message.body)
    return {
        "sequenceNumber": message.sequence_number,
        "enqueuedTime": datetime.fromtimestamp(message.enqueued_time, UTC).isoformat(timespec="milliseconds"),
        "messageId": message.message_id,
        "sessionId": message.session_id,
        "reason": message.dead_letter_reason,
        "description": message.dead_letter_description,
        "body": body,
        "bodyEncoding": encoding,
        "properties": dict(message.properties),
    }
