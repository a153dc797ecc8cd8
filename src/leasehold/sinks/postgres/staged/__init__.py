"""Rows that tasks copy into the database by themselves, and that the driver merges: the table `leasehold_staged`.

Who may do what at the same time. Any number of tasks write rows, each under tokens that nobody else has (`stager`),
and commit them as they come. One driver merges those of its own batch, by the receipts it got, and deletes them in the
same transaction (`rows`). Anybody clears what is old (`table`). A task that stops for a minute, or is killed, at any
line, leaves rows without a receipt, which nobody looks at; so does a second attempt, at whatever time it ends. A driver
that stops before its merge finds its rows when it goes on, or, if they were cleared meanwhile, that they are gone, and
stages them again; one that is killed leaves them to be cleared. The table is unlogged: a server that crashes empties
it, and the rows are staged again.
"""
