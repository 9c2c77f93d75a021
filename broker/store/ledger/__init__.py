"""Ledger entries and their stored sums."""
