"""Azure Service Bus as a queue."""
