"""When HISTORY is served."""
