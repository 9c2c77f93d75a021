"""What was spent: what it will come to, and what is out of the ordinary."""
