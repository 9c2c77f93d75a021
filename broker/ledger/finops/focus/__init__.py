"""The ledger in the columns of FOCUS, the FinOps Open Cost and Usage Specification."""
