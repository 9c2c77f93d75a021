"""Checks of this machine: what works, what is missing, and how to fix it."""
