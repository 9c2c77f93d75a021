"""A broker for GPU capacity."""
