"""Stores in a Redis server. Its modules need the driver: `leasehold[redis]`."""
