"""What runs machines: one engine a file, registered by name in `registry`."""
