"""Parked events of a handled table: what waits, until when, and who tries it again."""
