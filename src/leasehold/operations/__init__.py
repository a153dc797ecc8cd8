"""What operators see and do: progress and lag of a group, and setting its place."""
