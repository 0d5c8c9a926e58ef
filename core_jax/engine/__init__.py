"""The language-model engine: pages of keys and values, batches that change as requests come and go, an HTTP face."""
