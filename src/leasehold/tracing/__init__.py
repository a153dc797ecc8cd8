"""OpenTelemetry, by its API alone: spans and metrics after the messaging conventions, and links to producers.

`Tracing` is all there is. It needs `opentelemetry-api` (`pip install 'leasehold[otel]'`); the SDK and its exporter are
yours to choose. Nothing that works with events imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import MissingDependency

if TYPE_CHECKING:
    from leasehold.tracing.spans import Tracing

__all__ = ["Tracing"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from leasehold.tracing import spans
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "opentelemetry":
            raise MissingDependency("leasehold.tracing", "otel") from error
        raise
    return getattr(spans, name)
