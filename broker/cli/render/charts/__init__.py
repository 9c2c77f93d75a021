"""Charts as values, drawn in the terminal."""
