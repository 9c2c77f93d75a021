"""The cost of jobs: metered machine time, data transfer and provider charges as ledger entries."""
