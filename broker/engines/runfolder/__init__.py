"""The broker's side of the run folders: specs, leases, logs, retention and the packed agent."""
