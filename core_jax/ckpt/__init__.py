"""Checkpoints in and out: Hugging Face folders (hf) and training state (state)."""
