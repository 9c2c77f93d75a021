"""Google Cloud: machines with accelerators, priced part by part from the public catalogue; needs a login.

One file a source of offers or an ability; `provider` puts them together. Google's SDKs are imported in `login` and
`calls` alone, and only when a login is there.
"""
