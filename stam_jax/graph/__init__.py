"""What a memory is, the states it can be in, and the laws of its moves."""
