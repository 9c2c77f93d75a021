"""Purchases of capacity: what is quoted, what was decided and done, as values and events. Pure."""
