"""A topic of Kafka as a hub. Its modules need librdkafka: `leasehold[kafka]`."""
