"""A local Event Hubs server, for tests and for trying things out.

It speaks AMQP 1.0 with the official client `azure-eventhub` over any `log://` hub, or over hubs in memory:
producers and receivers, batches, partition keys, start positions, owner levels, consumer groups, properties
of hubs and partitions, and faults on demand. It is no place for secrets or for load: no encryption, no checks
of tokens, one thread.

    types → performatives → frames          bytes and values           pure
    addresses, messages, receivers          the words of Event Hubs    pure
    connection (with links)                 the state machine          pure
    store, log_store                        what is served
    hosting, management, serving, server    sockets and the loop
"""

from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.event_hubs.faults import Faults, Work
from leasehold_testkit.emulators.event_hubs.server import EventHubsServer
from leasehold_testkit.emulators.event_hubs.store import MemoryHub, ServedHub

__all__ = ["EventHubsServer", "Faults", "Limits", "MemoryHub", "ServedHub", "Work"]
