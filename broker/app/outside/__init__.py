"""Launches that people make directly with SkyPilot or Slurm: judged and paid for like those of the broker."""
