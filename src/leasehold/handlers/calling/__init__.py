"""Calls of a handler that may hang: in processes of their own, or interrupted, and at most so long in a batch."""
