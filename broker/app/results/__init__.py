"""The results of use cases as values: one model for each document that the command line prints with ``--json``."""
