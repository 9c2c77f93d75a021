"""The online spot strategy: state in, decision out. Pure; the live broker and `tests/lab` run this same code."""
