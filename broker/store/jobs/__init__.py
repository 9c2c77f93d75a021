"""Job events and views, and what is derived from them."""
