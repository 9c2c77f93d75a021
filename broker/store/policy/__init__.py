"""Policy versions and standing grants."""
