"""Controls and other memory systems, all through the harness that the memory itself runs in."""
