"""Use cases of money: budgets, spending reports, provider charges."""
