"""Entity tables that are filled without Spark, with columns of events as they are, some under other names.

Owns what a transform may be for that (`projection`), and the table (`table`, `of_file`).
"""
