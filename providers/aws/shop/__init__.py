"""What can be bought at AWS: one file a kind of product, and the registry of kinds."""
