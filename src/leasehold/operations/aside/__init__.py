"""What is set aside, for an operator: looked at, tried again, dropped, exported and brought in again mended."""
