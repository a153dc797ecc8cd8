"""Settings: one table of them, the kinds of their values, and the nearest name to a misspelt one."""
