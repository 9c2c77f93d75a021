"""Placement strategies on recorded spot markets, against baselines and the optimum."""
