"""What a transport problem is made of: costs, measures, noise, compiled kernels, and checks of input."""
