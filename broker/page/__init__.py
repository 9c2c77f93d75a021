"""The page of `gpubroker serve`: HTML made on the server, which works without JavaScript."""
