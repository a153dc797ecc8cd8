"""The rules of a batch, pure: which events are new, which row of a key wins, duplicates, order, content, values."""
