"""Databases that hold the entity table together with the watermarks that fence it."""
