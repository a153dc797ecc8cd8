"""SQL databases as the house of stores and tables: SQLite files, Postgres servers, and whose fault an error is."""
