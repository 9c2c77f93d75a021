"""Placements of a job: feasible → priced → ranked.

Pure: no databases, networks, processes or clocks; ``now`` is an argument. Start at
`broker.placement.planner.make_plan`.
"""
