"""An entity table in a SQLite file, and what is kept beside it in the same file."""
