"""Readers: each turns one format into a stream of entries, in bounded memory, without jax.

`read(path, ...)` yields `stam_jax.graph.memory.Entry`, or `Rendered` where the source brings its statements ready made.
"""
