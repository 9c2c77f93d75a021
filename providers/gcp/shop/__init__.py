"""What can be bought at Google Cloud: one file a kind of product, and the registry of kinds."""
