"""The dashboard: what it shows, who may see it, and what it keeps."""
