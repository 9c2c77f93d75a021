"""The engines by name, imported on first use (`broker.core.registry.load`)."""

ENGINES: dict[str, str] = {
    "local": "broker.engines.local:Local",
    "sandbox": "broker.engines.sandbox.engine:SandboxEngine",
    "skypilot": "broker.engines.skypilot.engine:Skypilot",
    "slurm": "broker.engines.slurm:SlurmEngine",
}

# The optional installs that engines need.
EXTRAS: dict[str, str] = {"skypilot": "skypilot"}
