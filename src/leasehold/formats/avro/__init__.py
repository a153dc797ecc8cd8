"""Bodies in Avro: `rows.avro_rows` reads them by the schema that wrote them."""
