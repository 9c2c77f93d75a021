"""The SkyPilot engine: `engine`, its `task`, the commands for a `node`, and the `sdk` adapter."""
