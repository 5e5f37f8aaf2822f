"""Estimators with a Wasserstein loss."""
