"""Use cases of advice: the economics, applied to the prices and the usage in the store."""
