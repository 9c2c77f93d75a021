"""Commands about prices and offers."""
