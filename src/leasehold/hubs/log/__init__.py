"""The embedded log: a hub in one SQLite file."""

from leasehold.hubs.log.hub import Keyless, LogHub

__all__ = ["Keyless", "LogHub"]
