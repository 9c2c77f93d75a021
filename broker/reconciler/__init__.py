"""Launching: decide the next step of each job (pure), take it (reconciler), and the agent that runs on the node."""
