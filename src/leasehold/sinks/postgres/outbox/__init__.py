"""The outbox in Postgres."""
