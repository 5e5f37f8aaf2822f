"""gibbsot."""
