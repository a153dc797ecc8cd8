"""The rules that a run of a story is held to, by name. What each means is in `judge.py` and `rest.py`."""

from __future__ import annotations

from enum import StrEnum


class Rule(StrEnum):
    """What was violated."""

    TWO_OWNERS = "two trusted owners"
    TRUST_TOO_LONG = "trust outlives the record"
    LEVEL_FELL = "an owner level did not rise"
    UNANNOUNCED = "held before its level was announced"
    HELD_WITH_A_GAP = "held again at the same level after a lapse"
    EFFECT_TWICE = "an effect twice"
    SKIPPED = "events skipped"
    CHECKPOINT_BACK = "a checkpoint went back"
    CHECKPOINT_AHEAD = "a checkpoint ahead of the effects"
    NOT_ITS_OWN = "another's record written"
    STOLEN_UNASKED = "stolen unasked"
    HANDED_UNASKED = "handed over unasked"
    NOT_DRAINED = "handed over before it was drained"
    NOT_HANDED = "given up, and not to who had asked for it"
    SLOW_HAND_OVER = "without an owner for too long in a hand-over"
    SUPERSEDED = "held although a later owner has been there"
    RESERVED = "taken although it is reserved"
    ACQUIRED_TWICE = "acquired again while trusted"
    MOVED = "moved without need"
    READ_TWICE = "read twice in a planned change"
    FALSE_ALARM = "levels went back without cause"
    NOT_BALANCED = "not owned and balanced in time"
    NOT_CONSUMED = "not consumed in time"
    BROKEN = "an error that nobody expects"


class Violation(AssertionError):
    """A rule does not hold. The rest of the report is `Report`'s."""

    def __init__(self, rule: Rule, text: str) -> None:
        self.rule = rule
        super().__init__(f"{rule.value}: {text}")
