"""The name that `leasehold.simulation` had; it is kept for those who import it."""

from leasehold.simulation import *  # noqa: F403
from leasehold.simulation import __all__ as __all__
