"""What the stores on Azure Blob Storage and Azure Tables share.

    names      what a group and a partition are called there
    layout     records as properties: the official ones, and ours beside them
    records    one record at a time: read, write if unchanged, list
    calls      many requests at once, within the store's time-out; errors in our words
    access     from a URL and the environment to an endpoint and a credential
    ownership, checkpoints   the two protocols of `leasehold.stores.base`, on `records`

Imports point from the bottom of this list to the top. Nothing here but `access` knows a credential.
"""
