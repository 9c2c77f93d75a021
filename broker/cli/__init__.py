"""The command line: one small module per noun. Each parses options, calls a use case of `broker.app`, and renders the
result."""
