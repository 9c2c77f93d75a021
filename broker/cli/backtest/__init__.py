"""Commands that replay strategies on recorded data."""
