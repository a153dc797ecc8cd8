"""Skipping one event that its partition cannot get past: the values of it, its rules, and what a sink offers for it.

Owns the rules of what `KeepsNotes` says of notes, and its values. Does no I/O.

1. A note names one event, which the watermark of its partition has not reached, and keeps its body with who wrote the
   note, when and why. It is written under the lock of that watermark: an event at or below it has been applied, or set
   aside, and gets no note.
2. A batch leaves out every row of a noted event, in the transaction that raises the watermark to the event or past it.
   That transaction sets the event aside as rejected, with the note's reason, and removes the note. So the watermark
   passes and the note goes together, or neither.
3. Writing a note is a change outside of batches (`rules.fence`, rule 10). What a handler has computed before is
   outdated, and is computed again without the event. As long as that count stays the same, the partition has no new
   note.
4. An owner asks for the notes before it reads a batch, and gives a noted event to no transform and no handler. It need
   not have the last notes for that: rules 2 and 3 hold for those that have come since.
5. A note is not taken back. An event that was skipped is a rejected event, which a person may try again. A reset that
   sets the watermark to the event or past it removes the note; one that sets it below a skipped event has the event
   read again, and it needs a new note to be skipped again.
6. Forgetting an entity empties the notes in whose body its key can be read. The events are skipped all the same.

Who may be doing what: notes are written while instances run, by anybody. Whoever is stopped before the commit of a note
has changed nothing, and holds up batches of that partition (SQLite: all who write) until its transaction ends. An owner
that is stopped at any line before its commit has skipped nothing; another owner finds the note where it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.sinks.rules.skipping import SkipNote

__all__ = ["Noted"]


@dataclass(frozen=True, slots=True)
class Noted:
    """What became of a note that was to be written.

    passed  the watermark where it has passed the event, so that nothing was written; None: it has not
    before  the note of this event that was there already, and stays
    """

    passed: int | None = None
    before: SkipNote | None = None
