"""Bodies in Protobuf to rows."""
