"""Who should hold what: pure functions from a listing to claims.

Nothing here does I/O, reads a clock or draws from a global random number generator: the state comes in as
arguments, with ages already computed, and a plan goes out. Whoever calls performs it.
"""

from leasehold.balancing.strategies import STRATEGIES, Claim, Strategy
from leasehold.balancing.trust import trust_duration
from leasehold.balancing.view import View, make_view

__all__ = ["STRATEGIES", "Claim", "Strategy", "View", "make_view", "trust_duration"]
