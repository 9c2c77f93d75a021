"""Products of AWS: one file a kind; `providers.shops` lists them."""
