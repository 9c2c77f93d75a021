"""Products of Google Cloud: one file a kind; `providers.shops` lists them."""
