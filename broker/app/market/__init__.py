"""Use cases of the market: offers, polls, imports, price history, risk."""
