"""Exact optima of transport problems, with proofs."""
