"""What everything on Azure has in common: connection strings, credentials, handshakes, and messages in their bytes."""
