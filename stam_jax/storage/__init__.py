"""Memories on disk: SQLite shards, and the journal that everything follows from."""
