"""Expected cost of a job on an offer: time, interruptions, checkpoints, transfer and storage. Pure."""
