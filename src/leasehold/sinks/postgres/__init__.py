"""An entity table in a Postgres database. Its modules need the driver: `leasehold[postgres]`."""
