"""Catalog files: price tables of third parties, read as a dated source."""
