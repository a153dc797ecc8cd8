"""Values of formats in which each value has a type, as Avro's and Protobuf's have: to columns, and to text."""
