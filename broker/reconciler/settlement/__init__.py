"""What jobs cost: metered machine time, data transfer and provider charges as ledger entries."""
