"""The words of `leasehold aside --help`: what a retry is of each kind, and examples under each name of the command."""

RETRY = """\b
rejected      the events go through the transform of the file as it is now, into the table. What they
              become changes in one transaction with the rejected rows. A later event of the same key,
              once applied, is never replaced; a table with mode append gets the rows added. What is
              rejected again stays, with its new reason. Needs Spark. Where a handler fills the table,
              they are parked again, as if they had never been tried, which needs no Spark.
parked        the owners try them at once, in place of after their pause. This command calls the handler
              itself for events of a hub that the file does not name any more.
refused       the owners of their partitions send them again, under the ids that they had. What was sent
              of their key meanwhile has come before them.
dead-letters  a copy is sent into the queue, then the dead letter is removed: ended in between, both are
              there. A copy has a message id of its own, and the first's id in the property
              leasehold-first-message-id. Copies of a subscription's dead letters go to its topic.

With --from the entries of the file are tried. A mended body of a rejected event, or of a dead letter, is tried in place
of its own, by the same rules; other kinds keep their bodies. What was set aside anew since the export, and a body that
names another entity, is left as it is and listed. Owners notice within 10 seconds what they are to try; where no events
come, they send within a minute. Instances may be running.
"""
_TABLE = "The file names the table that the handler fills, as `name`, `[source] hub` and `[sink]`."
EXAMPLES = {
    "aside": """Of a pipeline that is rejected rows, parked events, emitted events that their hub refuses, and notes of
what was dropped; of a queue its dead letters. Instances may be running.

\b
Example:
  leasehold aside flights.toml
  leasehold aside show flights.toml --kind rejected --event 3:1042
  leasehold aside export flights.toml --kind rejected --reason-has "the field delay" > mend.jsonl
  leasehold aside retry flights.toml --kind rejected --from mend.jsonl
  leasehold aside drop flights.toml --kind parked --event 3:1042 --because "a test message"
""",
    "rejected": """This is `leasehold aside --kind rejected`.

\b
Example:
  leasehold rejected flights.toml
  leasehold rejected retry flights.toml --reason-has "the field delay"
  leasehold rejected drop flights.toml --event 3:1042 --because "a test message"
""",
    "parked": f"""This is `leasehold aside --kind parked`. {_TABLE}

\b
Example:
  leasehold parked orders.toml
  leasehold parked retry orders.toml --reason-has "ConnectionError"
  leasehold parked drop orders.toml --event 3:1042 --because "a test message"
""",
    "outbox": f"""This is `leasehold aside --kind refused`. {_TABLE}

\b
Example:
  leasehold outbox orders.toml
  leasehold outbox retry orders.toml --reason-has "too large"
  leasehold outbox drop orders.toml --event 1042 --because "nobody reads it"
""",
    "dead-letters": """This is `leasehold aside --kind dead-letters`.

\b
Example:
  leasehold dead-letters servicebus://NAMESPACE.servicebus.windows.net/orders
  leasehold dead-letters resubmit servicebus://NAMESPACE.servicebus.windows.net/orders --reason-has "no amount"
  leasehold dead-letters drop servicebus://NAMESPACE.servicebus.windows.net/orders --event 42 --because "a test"
""",
}
