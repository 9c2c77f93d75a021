"""Google Cloud: machines with accelerators, priced part by part from the public catalog; needs a login.

Each file is one source of offers or one ability; `provider` combines them. Only `login` and `calls` import Google's
SDKs, and only if there is a login.
"""
