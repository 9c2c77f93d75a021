"""Microsoft Azure: retail prices without a login; with one also what an account may use, and what it holds.

Each file is one source of offers or one ability; `provider` combines them. Only `pipeline` imports Azure's SDK, and
only if there is a login.
"""
