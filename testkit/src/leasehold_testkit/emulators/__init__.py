"""Local servers that speak the protocols of services, for tests and for trying things out."""
