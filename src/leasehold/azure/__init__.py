"""What hubs, queues and their official clients have in common on Azure: connection strings, and handshakes."""
