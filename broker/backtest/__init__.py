"""Replaying strategies on recorded spot availability, against baselines and the omniscient optimum."""
