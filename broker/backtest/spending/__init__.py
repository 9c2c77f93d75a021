"""Forecasts of spending and alarms about it on recorded daily spending."""
