"""People, API tokens and the audit log."""
