"""The loop: micro-batches that are planned from what is held, evaluated by Spark and committed by the driver."""
