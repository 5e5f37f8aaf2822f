"""Reading measures, writing files atomically, and progress bars."""
