"""Job events, the fold that makes job views of them, and the formats of stored records. Pure."""
