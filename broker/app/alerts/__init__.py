"""Notices to people: price watches, approval requests, delivery."""
