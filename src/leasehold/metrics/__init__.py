"""Metrics for Prometheus: of the instances of this process, out of their notices, and of groups, seen from outside.

`serve_metrics(processor.notices)` serves those of an instance; `leasehold metrics` those of groups. It needs
`prometheus_client` (`pip install 'leasehold[metrics]'`). Nothing that works with events imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import MissingDependency

if TYPE_CHECKING:
    from leasehold.metrics.instance_server import MetricsServer, serve_metrics

__all__ = ["MetricsServer", "serve_metrics"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from leasehold.metrics import instance_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "prometheus_client":
            raise MissingDependency("leasehold.metrics", "metrics") from error
        raise
    return getattr(instance_server, name)
