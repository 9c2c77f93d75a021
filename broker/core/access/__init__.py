"""People of a team server, what their roles allow, their API tokens, and the record of what they changed."""
