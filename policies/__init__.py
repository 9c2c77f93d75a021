"""Budgets and guardrails that budget owners write: the policy-file schema, its loader, and one rule per file."""
