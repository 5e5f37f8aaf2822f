"""Baselines of the paper that no library has: Bregman ADMM and smoothed Wasserstein NMF."""
