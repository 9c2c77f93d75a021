"""The tables of jobs: their projections, their events, the machine time of their attempts; the settings of a
store.
"""

from __future__ import annotations

from sqlmodel import SQLModel

from broker.store.schema.jobs import IS_THERE as IS_THERE
from broker.store.schema.jobs import STILL_THERE as STILL_THERE
from broker.store.schema.jobs import UNCLOSED as UNCLOSED

JOB = SQLModel.metadata.tables["job"]
EVENT = SQLModel.metadata.tables["attempt_event"]
MACHINE_TIME = SQLModel.metadata.tables["machine_time"]
SETTING = SQLModel.metadata.tables["setting"]
