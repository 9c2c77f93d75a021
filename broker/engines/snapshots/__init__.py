"""Snapshots of the submitter's files, taken at submission: see README.md."""
