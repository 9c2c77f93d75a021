"""The team server's HTTP API. Needs the extra `server`; other packages import this one only when it is used."""
