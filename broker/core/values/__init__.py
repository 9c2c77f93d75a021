"""Values without a domain: money, units, time, accelerators. Pure."""
