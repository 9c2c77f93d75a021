"""The use cases that a team server offers, and their table. Each takes the caller first and returns its document."""
