"""Handlers of entities on Spark: tasks call them, the driver commits what they answer."""
