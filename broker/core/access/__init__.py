"""The users of a team server, the permissions of their roles, their API tokens, and the audit log."""
