"""What is done to an entity table in SQLite outside of batches: a look at it, and its rejected rows."""
