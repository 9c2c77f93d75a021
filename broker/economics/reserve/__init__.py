"""How much capacity to reserve, and how much to leave to bursts. See the README of `broker.economics`."""
