"""Purchases of capacity: judged like a launch, money held, approved, ordered once, confirmed, settled."""
