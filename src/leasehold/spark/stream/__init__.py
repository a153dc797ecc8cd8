"""The Spark data source `leasehold`, batch and streaming."""
