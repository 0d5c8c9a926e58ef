"""The write path: entries in, one commit a wave."""
