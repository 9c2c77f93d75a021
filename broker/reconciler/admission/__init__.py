"""The gate in front of every launch: policies, budgets, holds and approval requests."""
