"""The name that `leasehold.emulators.event_hubs` had; it is kept for those who import it."""

from leasehold.emulators.event_hubs import *  # noqa: F403
from leasehold.emulators.event_hubs import __all__ as __all__
