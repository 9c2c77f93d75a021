"""Offers, price history, polls, watches and recorded holdings."""
