"""The words and values that everything else speaks in. Pure: no databases, networks, processes or clocks."""
