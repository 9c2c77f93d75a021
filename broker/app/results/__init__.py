"""What use cases answer with, as values: one model per document that the command line prints with ``--json``."""
