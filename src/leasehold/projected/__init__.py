"""Entity tables that are filled without Spark, with columns of events as they are, some under other names.

Owns what a transform may be for that (`projection`), the table (`table`, `of_file`), and what a file tells of the
columns of its table (`columns_of_file`).
"""
