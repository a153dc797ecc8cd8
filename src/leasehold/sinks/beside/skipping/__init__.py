"""Events that a person has noted to be skipped: what a note is, and what a sink does with it."""

from leasehold.sinks.beside.skipping.contract import Noted
from leasehold.sinks.rules.skipping import SkipNote

__all__ = ["Noted", "SkipNote"]
