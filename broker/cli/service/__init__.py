"""Commands that run or examine the broker itself."""
