"""A team server as seen from a person's machine: logging in, its API, and submission through it."""
