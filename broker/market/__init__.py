"""The market: polls providers into the store, and queries stored offers."""
