"""Capacity as values: offers, holdings, machines and price watches. Pure."""
