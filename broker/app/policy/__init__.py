"""Use cases of policy files: check, apply, explain, replay."""
