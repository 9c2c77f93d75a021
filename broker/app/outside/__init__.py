"""Launches that people make elsewhere, with SkyPilot or Slurm themselves: judged and paid for like own ones."""
