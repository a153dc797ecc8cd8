"""`leasehold checkpoints`: checkpoints as text, and the way out of a store and into one."""
