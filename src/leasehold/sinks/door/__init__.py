"""One door: everything that is written to an entity table is a batch, and goes through one transaction.

`steps` has the steps of that transaction in one list, `events`, `again` and `messages` what they do, and `open_batch`
what one step hands to the next.
"""
