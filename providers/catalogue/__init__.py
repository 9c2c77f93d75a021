"""Catalogue files: prices that somebody else gathered into a table, read as a dated source."""
