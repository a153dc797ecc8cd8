"""Bodies that Kafka Connect has written: JSON with the schema beside it, and Debezium's changes of a table's rows."""
