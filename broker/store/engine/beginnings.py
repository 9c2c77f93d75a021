"""Texts found by their beginning, by an index on both databases."""

from __future__ import annotations

from sqlalchemy import Column, ColumnElement, Connection

_LAST = "\U0010ffff"  # sorts after every other character


def begins(connection: Connection, column: Column[str], prefix: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The conditions that a text begins with that: a range by code points. PostgreSQL has its own operators and index
    class (``text_pattern_ops``) for it, as its default order depends on the locale."""
    not_before, before = (">=", "<") if connection.dialect.name == "sqlite" else ("~>=~", "~<~")
    return column.op(not_before, is_comparison=True)(prefix), column.op(before, is_comparison=True)(prefix + _LAST)
