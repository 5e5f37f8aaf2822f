"""Optimal transport: estimates, certificates, exact optima, and the oracle that models use."""
