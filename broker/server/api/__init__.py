"""The API of a team server."""
