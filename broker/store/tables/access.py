"""The tables of people, tokens, sessions of the page, logins of programs, repeated requests, and the audit log."""

from __future__ import annotations

from broker.store.tables.plain import plain

PERSON = plain("person")
API_TOKEN = plain("api_token")
API_REQUEST = plain("api_request")
PAGE_SESSION = plain("page_session")
DEVICE_LOGIN = plain("device_login")
PROVIDER_SIGN_IN = plain("provider_sign_in")
IDENTITY = plain("identity")
AUDIT = plain("audit_log")
SIGN_IN_LINK = plain("sign_in_link")
