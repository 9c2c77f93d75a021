"""The team server's HTTP API. Needs the extra `server`; nothing else imports this room at start-up."""
