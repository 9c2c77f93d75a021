"""The tables of people, tokens, sessions of the page, logins of programs, repeated requests, and the audit log."""

from __future__ import annotations

from sqlmodel import SQLModel

import broker.store.schema.access  # noqa: F401

PERSON = SQLModel.metadata.tables["person"]
API_TOKEN = SQLModel.metadata.tables["api_token"]
API_REQUEST = SQLModel.metadata.tables["api_request"]
PAGE_SESSION = SQLModel.metadata.tables["page_session"]
DEVICE_LOGIN = SQLModel.metadata.tables["device_login"]
PROVIDER_SIGN_IN = SQLModel.metadata.tables["provider_sign_in"]
IDENTITY = SQLModel.metadata.tables["identity"]
AUDIT = SQLModel.metadata.tables["audit_log"]
SIGN_IN_LINK = SQLModel.metadata.tables["sign_in_link"]
