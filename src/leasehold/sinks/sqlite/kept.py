"""SQL for columns in which others may have left anything."""


def as_kept(column: str) -> str:
    """A column as its bytes: what is not UTF-8 would fail the whole query."""
    return f"CAST({column} AS BLOB)"


def number(column: str) -> str:
    """A column of numbers, 0 where it has none."""
    return f"CASE WHEN typeof({column}) IN ('integer', 'real') THEN {column} ELSE 0 END"


def anything(column: str) -> str:
    """A column of numbers as it is, a text in it as its bytes."""
    return f"iif(typeof({column}) = 'text', {as_kept(column)}, {column})"
