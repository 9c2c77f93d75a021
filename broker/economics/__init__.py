"""Needs and costs of GPU work: pure functions. See README.md in this folder."""
