"""Which format of stored data this release reads: the one that it writes.

Owns the decision and its words, for files, tables and keys alike. Whoever keeps such data reads the number that it
states, before anything is made or changed, and raises the error. A number rises with each change of its format and is
never used again.
"""

from __future__ import annotations


def refusal(what: str, stated: int | None, written: int, remedy: str) -> str | None:
    """Why data that states this format is not used; None where it is the one `written` here.

    `what` names the data and ends in its verb: "FILE has". `stated` is None where it states none. `remedy` says what
    to do with data of an earlier format.
    """
    if stated == written:
        return None
    if stated is not None and stated > written:
        return (
            f"{what} format {stated}, and this release knows formats up to {written}: pip install --upgrade leasehold"
        )
    said = "no format" if stated is None else f"format {stated}"
    return f"{what} {said}, and this release reads format {written} alone: an earlier one wrote it. {remedy}"
