"""Engines start, observe and end machines: one engine per file or folder, registered by name in `registry`."""
