"""Load on a team server: people who look and people who submit, while the leader is killed."""
