"""Money rules that budget owners write: the policy-file schema, its loader, and the rules, one a file."""
