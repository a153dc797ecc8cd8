"""What has to work with every PySpark that Leasehold admits, each in an environment of its own: `make spark`."""
