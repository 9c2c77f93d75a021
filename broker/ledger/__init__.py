"""Money as it moves: holds, settlements, releases, corrections; and what budgets make of them. Pure arithmetic."""
