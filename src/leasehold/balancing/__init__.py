"""Who should hold what: pure functions from a listing to claims, asks and waiting.

Nothing here does I/O, reads a clock or draws from a global random number generator: the state comes in as
arguments, with ages already computed, and a plan goes out. Whoever calls performs it.
"""

from collections.abc import Mapping

from leasehold.balancing.planned import Target, planned, target
from leasehold.balancing.quotas import Member
from leasehold.balancing.strategies import Claim, Strategy, balanced, greedy
from leasehold.balancing.trust import trust_duration
from leasehold.balancing.view import Limits, Me, View, make_view

__all__ = [
    "STRATEGIES",
    "Claim",
    "Limits",
    "Me",
    "Member",
    "Strategy",
    "Target",
    "View",
    "make_view",
    "target",
    "trust_duration",
]

STRATEGIES: Mapping[str, Strategy] = {"greedy": greedy, "balanced": balanced, "planned": planned}
