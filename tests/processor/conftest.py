"""Properties are about what comes out, not about how long a shared core took: no deadlines."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
