"""Amazon Web Services: list prices and spot signals without a login, spot prices and everything else with one.

One file a source of offers or an ability; `provider` puts them together. boto3 is imported in `login` alone, and only
when a login is there.
"""
