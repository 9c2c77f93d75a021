"""Reservation rules on recorded demand, against the optimum."""
