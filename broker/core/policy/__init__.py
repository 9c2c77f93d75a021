"""Inputs and verdicts of policies, and coverage of approvals. Pure."""
