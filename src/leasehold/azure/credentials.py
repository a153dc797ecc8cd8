"""The credential of azure-identity: for hubs, queues, stores and tables that name no key and no connection string."""

from __future__ import annotations

from typing import Any

from leasehold.errors import MissingDependency


def default_credential(what: str, extra: str = "azure") -> Any:
    """The `DefaultAzureCredential`: managed identity, workload identity, environment, Azure CLI, in its own order.

    Raises `MissingDependency`, which says `what` needs it and the `extra` that brings it.
    """
    try:
        from azure.identity import DefaultAzureCredential
    except ModuleNotFoundError:
        raise MissingDependency(what, extra) from None
    return DefaultAzureCredential()
