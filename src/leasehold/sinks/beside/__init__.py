"""What a sink keeps beside an entity table: rejected and parked events, an outbox, messages, versions, related rows."""
