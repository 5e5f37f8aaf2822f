"""The Gibbs sampler of the paper, its temperatures and its theory."""
