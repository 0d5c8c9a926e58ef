"""Model families, each readable top to bottom in one file."""
