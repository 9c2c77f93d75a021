"""The domain's terms and values, which all other packages use. Pure: no databases, networks, processes or clocks."""
