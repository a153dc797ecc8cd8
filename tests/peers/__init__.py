"""Tests beside other parts that are real, and are taken from packages of the system: `make peers`."""
