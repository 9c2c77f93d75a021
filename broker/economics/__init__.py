"""What GPU work takes and what it costs: pure functions, values in and values out. See README.md in this folder."""
