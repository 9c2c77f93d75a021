"""Use cases of a team server's identity: people and roles, API tokens, the audit log."""
