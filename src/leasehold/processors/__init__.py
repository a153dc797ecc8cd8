"""Processors without Spark: of a hub's events, and of a queue's messages."""
