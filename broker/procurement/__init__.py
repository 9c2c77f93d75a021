"""Buying capacity: judged like a launch, held for, approved, ordered once, confirmed and settled."""
