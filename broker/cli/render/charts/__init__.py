"""Charts as values, drawn in the terminal or written as a picture."""
