"""`people`, `tokens` and `audit`."""
