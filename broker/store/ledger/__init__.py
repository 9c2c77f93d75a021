"""Ledger entries and the sums kept beside them."""
