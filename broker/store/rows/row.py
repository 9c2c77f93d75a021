"""The base class of all rows."""

from __future__ import annotations

import re

from sqlalchemy import BigInteger, Integer
from sqlalchemy.orm import declared_attr
from sqlmodel import SQLModel

# Only an INTEGER PRIMARY KEY is SQLite's row id; it is as wide as BIGINT there.
ID = BigInteger().with_variant(Integer, "sqlite")


class Row(SQLModel):
    """Base of all rows; `AuditLogRow` is a row of the table ``audit_log``. Rows are never validated, so pydantic's
    validators are not built."""

    model_config = {"defer_build": True}

    @declared_attr.directive
    def __tablename__(cls) -> str:  # called with the class
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Row")).lower()
