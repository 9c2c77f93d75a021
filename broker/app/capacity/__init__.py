"""Use cases of owned, reserved and committed capacity."""
