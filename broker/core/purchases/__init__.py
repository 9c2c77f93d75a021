"""Purchases of capacity: quotes, orders and events. Pure."""
