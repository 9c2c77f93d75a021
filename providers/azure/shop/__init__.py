"""Products of Azure: one file a kind; `providers.shops` lists them."""
