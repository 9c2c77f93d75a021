"""Commands about owned, reserved and committed capacity."""
