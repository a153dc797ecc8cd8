"""Bodies in Avro: `rows` reads them one at a time, and is the definition; `columns` reads many at once."""
