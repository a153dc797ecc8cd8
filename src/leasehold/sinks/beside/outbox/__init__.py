"""The outbox: events that handlers emit, kept until they are sent."""
