"""SkyPilot as an engine: `engine` is the engine, `task` what it asks for, `node` what a node is told, `sdk` the SDK."""
