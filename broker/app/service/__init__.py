"""Duties of a running broker: reconcile, poll, sweep, report health."""
