"""Wasserstein NMF."""
