"""What the stores in SQLite and in Postgres have in common; `database.py` says what each has for itself."""
