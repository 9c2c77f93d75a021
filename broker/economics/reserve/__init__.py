"""Sizing of reserved capacity against bursts. See the README of `broker.economics`."""
