"""Analysis of spending: forecasts, anomalies, changes between months, idle capacity, and FOCUS exports."""
