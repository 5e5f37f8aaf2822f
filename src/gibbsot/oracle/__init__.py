"""Values and gradients of many transport costs whose measures move."""
