"""Many jobs on limited capacity: who gets which machines, and when. Pure."""
