"""Movements of money (holds, settlements, releases, corrections) and the state of budgets. Pure arithmetic."""
