"""Engines run machines: one engine per file, registered by name in `registry`."""
