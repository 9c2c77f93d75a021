"""The market: polling providers into the store, and what the stored offers answer."""
