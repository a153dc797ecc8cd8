"""Azure Event Hubs as a hub. Its modules need the official client: `leasehold[eventhubs]`."""
