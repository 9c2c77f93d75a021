"""Backtests of spending forecasts and anomaly alarms on recorded daily spending."""
