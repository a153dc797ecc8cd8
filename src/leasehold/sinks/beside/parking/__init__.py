"""Parked events: those whose handler has raised, and those of the same entity behind them."""
