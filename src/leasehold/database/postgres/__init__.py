"""A Postgres server: connections, where our tables are, and whose fault an error is."""
