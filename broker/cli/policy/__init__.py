"""Commands about policy files."""
