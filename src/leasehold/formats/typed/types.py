"""The type of a value in a body, in one vocabulary for all formats whose values have types.

Owns the names, which are Avro's, since it has most of them:

    null, boolean, float, double, string, bytes, fixed, enum   an enum's value is its symbol
    int, long, unsigned   whole numbers of 32 and 64 bits, and of 64 bits without a sign
    moment                a whole number of any size, with a logical type that says what it counts
    json                  a text that is JSON
    record, array, map    what holds others
"""

from __future__ import annotations

from dataclasses import dataclass

HOLDING = frozenset({"record", "array", "map"})
"""Kinds of values that hold others."""
WHOLE = frozenset({"int", "long", "unsigned"})
MOST_SCALE = 1_000
"""The digits behind the point, or zeros before it, of a decimal whose schema, or who wrote it, states them."""


@dataclass(slots=True, eq=False)
class ValueType:
    """A type.

    logical           its logical type as Avro calls it; `""` without one
    precision, scale  of a decimal; of `bits`, which are bytes with the lowest first, `precision` is how many, 0 if that
                      is not said
    """

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
