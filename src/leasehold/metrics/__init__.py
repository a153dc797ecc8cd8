"""Metrics for Prometheus: of a group, seen from outside. Nothing that works with events imports it."""
