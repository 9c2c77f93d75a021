"""The web page of `gpubroker serve`: HTML rendered on the server, usable without JavaScript."""
