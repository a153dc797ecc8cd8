"""What is read, and what becomes of it: offsets, options, one instance's share, bodies and the transform."""
