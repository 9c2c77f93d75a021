"""The command line: one small module a noun. Parse, call a use case of `broker.app`, render."""
