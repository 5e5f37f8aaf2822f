"""What the paper compares with and no library has."""
