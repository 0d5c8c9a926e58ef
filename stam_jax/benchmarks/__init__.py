"""The suites of `stam bench`, and the files of others that they read."""
