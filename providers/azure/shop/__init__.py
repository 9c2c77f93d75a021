"""What can be bought at Azure: one file a kind of product, and the registry of kinds."""
