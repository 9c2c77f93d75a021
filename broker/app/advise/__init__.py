"""Use cases of advice: the economics joined with what the store knows of prices and of our own use."""
