"""What everything on Azure has in common: connection strings, credentials and handshakes."""
