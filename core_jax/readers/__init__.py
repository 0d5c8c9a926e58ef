"""Readers: each turns one format into a stream of `core_jax.records.Patient`, in bounded memory, without jax."""
