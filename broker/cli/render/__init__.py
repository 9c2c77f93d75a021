"""Results as text: tables, JSON, charts, errors, reasons and events."""
