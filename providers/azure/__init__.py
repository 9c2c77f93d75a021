"""Microsoft Azure: retail prices without a login; what an account may have of it, and holds, with one.

One file a source of offers or an ability; `provider` puts them together. Azure's SDK is imported in `pipeline` alone,
and only when a login is there.
"""
