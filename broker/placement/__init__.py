"""Where a job could run, what that would cost, and in which order to try: feasible → priced → ranked.

Pure: no databases, networks, processes or clocks; ``now`` is passed in. Start at `broker.placement.planner.make_plan`.
"""
