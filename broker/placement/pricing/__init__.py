"""What a job is expected to cost on an offer: time, interruptions, checkpoints, transfer and storage. Pure."""
