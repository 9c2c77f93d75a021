"""Estimates of serving speed against published measurements."""
