"""The entity table on Spark, for `MicroBatches`, `foreachBatch` and sources of Spark's own."""
