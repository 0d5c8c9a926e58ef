"""The read path: a question in, a packet and an answer out."""
