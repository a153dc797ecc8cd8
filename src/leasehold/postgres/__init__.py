"""A Postgres server as the house of stores and entity tables: connections, and where our tables are."""
