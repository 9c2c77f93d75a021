"""Commands about budgets, spending and provider charges."""
