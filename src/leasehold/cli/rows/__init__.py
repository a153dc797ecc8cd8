"""Files of rows, read as event bodies."""
