"""A local Service Bus server, for tests and for trying things out.

It speaks AMQP 1.0 with the official client `azure-servicebus`: queues, topics with subscriptions, peek-lock and
receive-and-delete, complete, abandon, defer, dead-letter, locks that are renewed and run out, sessions with state,
scheduling and cancelling, peek, duplicate detection, delivery counts, and faults on demand; in a SQLite file, or in
memory. It is no place for secrets or for load: no encryption, no checks of tokens, one thread. It has no rules of
subscriptions (each gets every message), no transactions, no forwarding, no partitioned entities, and no management of
entities over HTTP.

    content, stored, settings, addresses    the words of Service Bus     pure
    queue, sessions, deliveries             the state machines           pure
    kept                                    the file
    namespace, management, serving, server  the loop and the sockets
"""

from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.service_bus.faults import Faults, Work
from leasehold_testkit.emulators.service_bus.server import ServiceBusServer
from leasehold_testkit.emulators.service_bus.settings import QueueSettings, TopicSettings

__all__ = ["Faults", "Limits", "QueueSettings", "ServiceBusServer", "TopicSettings", "Work"]
