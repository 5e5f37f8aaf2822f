"""Files that are read and written, and progress."""
