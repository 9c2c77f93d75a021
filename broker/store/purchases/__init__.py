"""Purchases of capacity in the store."""
