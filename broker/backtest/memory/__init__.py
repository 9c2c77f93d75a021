"""Estimates of GPU memory against published measurements."""
