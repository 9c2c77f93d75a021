"""Amazon Web Services: list prices and spot signals without a login, spot prices and everything else with one.

Each file is one source of offers or one ability; `provider` combines them. Only `login` imports boto3, and only if
there is a login.
"""
