"""The store's interface: transactions for jobs and money, and one method per query for everything else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Unpack

from sqlalchemy import delete, false, insert, select, update

from broker.core.errors import StoreProblem, UnknownName
from broker.core.events.events import EventBody
from broker.core.events.views import JobView
from broker.core.extras import own_version
from broker.core.job.jobs import Job
from broker.core.market.offers import Offer, OfferQuery
from broker.core.market.places import drop_engine_if_closed
from broker.core.memory import without_collection
from broker.core.purchases.purchases import Purchase
from broker.core.purchases.quotes import CapacityQuote
from broker.core.records import ReaderVersion, reader_version
from broker.core.values.clock import Clock
from broker.economics.reserve.holdings import Holding, RecordedHolding
from broker.ledger.journal import StaleJobView
from broker.store import market_history
from broker.store.access import access
from broker.store.access.access import AccessStore
from broker.store.engine import copies, leader
from broker.store.engine.copies import StoreCopy
from broker.store.engine.database import Database, reads, rehearse
from broker.store.engine.fields import to_micros
from broker.store.engine.leader import LeaderRole, StillLeading
from broker.store.engine.revisions import ensure_current
from broker.store.jobs.journal import Proof, StoreWriter, prove
from broker.store.jobs.reader import StoreReader
from broker.store.ledger import charges
from broker.store.ledger.charges import Charges
from broker.store.market import acceptances, holdings, polls
from broker.store.market import market as current_offers
from broker.store.market_history import MarketHistory
from broker.store.outbox import BudgetMarks, Outbox, Watches
from broker.store.policy import policies
from broker.store.purchases import purchases
from broker.store.records import AcceptedPrices, PolicyVersion, PollDetails, PollRun
from broker.store.schema.jobs import SettingRow

_LEADER_READS = "leader_reads"  # the setting of the store with what the last leader of the jobs could read


class Store:
    """One open store: jobs and money, and the market, policy and setting tables.

    Thread-safe; several processes may have the same store open. Every method is one transaction and may raise
    `StoreProblem`.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._runs_jobs = False

    @cached_property
    def market(self) -> MarketHistory:
        return market_history.MarketHistory(self._database)

    @cached_property
    def watches(self) -> Watches:
        return Watches(self._database)

    @cached_property
    def outbox(self) -> Outbox:
        return Outbox(self._database)

    @cached_property
    def budget_marks(self) -> BudgetMarks:
        return BudgetMarks(self._database)

    @cached_property
    def charges(self) -> Charges:
        return charges.Charges(self._database)

    @cached_property
    def access(self) -> AccessStore:
        """People, API tokens and the audit log."""
        return access.AccessStore(self._database)

    @property
    def where(self) -> str:
        """The file, or the URL without its password."""
        return self._database.where

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    # --- jobs and money ---------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[StoreReader]:
        """A consistent snapshot; read-only."""
        with self._database.reading() as connection:
            yield StoreReader(connection, for_leader=self._runs_jobs)

    @contextmanager
    def asking(self) -> Iterator[StoreReader]:
        """For a single query: takes one round trip to PostgreSQL instead of three.

        Several queries in it may see different states.
        """
        with self._database.asking() as connection:
            yield StoreReader(connection, for_leader=self._runs_jobs)

    @contextmanager
    def writing(self) -> Iterator[StoreWriter]:
        """A serialized transaction: committed on leaving, rolled back on any exception. Does not nest."""
        with self._database.writing() as connection:
            yield StoreWriter(connection, for_leader=self._runs_jobs)

    @contextmanager
    def rehearsal(self) -> Iterator[Store]:
        """This store for a rehearsal: everything written in the block is rolled back at its end.

        Other writers wait meanwhile, so keep it short. For one thread.
        """
        with rehearse(self._database) as database:
            yield Store(database, self._clock)

    @contextmanager
    def lead(self, duty: LeaderRole = LeaderRole.JOBS) -> Iterator[StillLeading | None]:
        """As `broker.store.engine.leader.lead`. The leader of the jobs records what it can read (`leader_reads`), and
        cannot read a job that uses a field that this version does not know: it would not do as its owner asks."""
        with leader.lead(self._database, duty) as still_leading:
            if duty is not LeaderRole.JOBS or still_leading is None:
                yield still_leading
                return
            reads = json.dumps(asdict(reader_version(own_version(), Job)))
            with suppress(StoreProblem):  # the first pass reports what is wrong with the store
                if self.setting(_LEADER_READS) != reads:
                    self.set_setting(_LEADER_READS, reads)
            self._runs_jobs = True
            try:
                yield still_leading
            finally:
                self._runs_jobs = False

    def leader_reads(self) -> ReaderVersion | None:
        """What the process can read that runs the jobs now, or ran them last; None if none ever did."""
        reads = self.setting(_LEADER_READS)
        return None if reads is None else ReaderVersion(**json.loads(reads))

    def is_led(self, duty: LeaderRole = LeaderRole.JOBS) -> bool:
        return leader.is_led(self._database, duty)

    def using_snapshots(self) -> AbstractContextManager[None]:
        """As `broker.store.engine.leader.protect_snapshots`."""
        return leader.protect_snapshots(self._database)

    def deleting_snapshots(self, wait: float = 5.0) -> AbstractContextManager[bool]:
        """As `broker.store.engine.leader.hold_snapshots`."""
        return leader.hold_snapshots(self._database, wait)

    def copy_to(self, file: Path) -> StoreCopy:
        """Copy the store into a new file. Raises as `broker.store.engine.copies.copy_to`."""
        return copies.copy_to(self._database, file)

    def restore_from(self, file: Path) -> StoreCopy:
        """Replace the store's content by that of a copy. Raises as `broker.store.engine.copies.restore_from`."""
        copy = copies.restore_from(self._database, file)
        ensure_current(self._database)
        return copy

    def check_writable(self) -> None:
        """Raises `StoreProblem` if the store cannot be written, so that callers fail early."""
        with self._database.writing() as connection:
            connection.execute(update(SettingRow).where(false()).values(value=SettingRow.value))

    def rebuild(self) -> int:
        """Rebuild every projection from events and entries; returns the number of jobs."""
        with self.writing() as journal:
            return journal.rebuild()

    def prove(self) -> Proof:
        """Verify every projection against events and entries."""
        return prove(self._database)

    # --- the market -------------------------------------------------------------------------------------------------

    def record_poll(
        self,
        provider: str,
        *,
        started: datetime,
        finished: datetime,
        offers: Iterable[Offer],
        **details: Unpack[PollDetails],
    ) -> PollRun:
        """Store one poll of ``provider`` (the adapter's name), all or nothing; returns its record, including rows that
        the store skipped. Times are UTC."""
        # A list, because a slow generator must not run inside the transaction.
        checked = [drop_engine_if_closed(offer) for offer in offers]
        with self._database.writing() as connection, without_collection():
            return polls.record_poll(connection, provider, started, finished, checked, details)

    def accept_doubts(self, provider: str, pools: Sequence[str] = (), *, by: str, note: str = "") -> AcceptedPrices:
        """Accept an adapter's suspicious offers, or those of ``pools``: offers missing from a suspect poll end,
        odd prices are believed. Recorded with ``by``, the person. Raises `InvalidInput` if there is none.
        """
        with self._database.writing() as connection:
            at = to_micros(self._clock.now())
            return acceptances.accept(connection, provider, pools, by=by, note=note, at=at)

    last_polls = reads(polls.last_polls)

    def offers(self, query: OfferQuery | None = None) -> list[Offer]:
        """The current offers that match, as `StoreReader.offers`; all of them without a query."""
        with self.reading() as snapshot:
            return snapshot.offers(query or OfferQuery())

    count_offers = reads(current_offers.count_offers)
    rejected_in_sql = reads(current_offers.rejected_in_sql)

    # --- capacity that is held --------------------------------------------------------------------------------------

    holding_proof = reads(holdings.proof)

    def add_holding(self, holding: Holding, *, by: str) -> RecordedHolding:
        with self._database.writing() as connection:
            return holdings.add(connection, holding, by=by, at=self._clock.now())

    def add_proved_holding(self, holding: Holding, name: str, content: bytes, *, by: str) -> RecordedHolding:
        """Record a holding and store the document that proves it, in one transaction."""
        with self._database.writing() as connection:
            with_proof = replace(holding, proof=holdings.keep_proof(connection, name, content))
            return holdings.add(connection, with_proof, by=by, at=self._clock.now())

    def remove_holding(self, number: int, *, by: str) -> RecordedHolding:
        """Remove a holding and return it. Raises `UnknownName` if the number does not exist."""
        with self._database.writing() as connection:
            return holdings.remove(connection, number, by=by, at=self._clock.now())

    holdings = reads(holdings.holdings)

    # --- purchases of capacity --------------------------------------------------------------------------------------

    def purchase(self, id: str) -> Purchase:
        """One purchase. Raises `UnknownName`."""
        with self.reading() as snapshot:
            purchase = snapshot.purchase(id)
        if purchase is None:
            raise UnknownName("purchase", id, [known.id for known in self.purchases(closed=True)])
        return purchase

    purchase_events = reads(purchases.events)
    quote = reads(purchases.quote)

    def keep_quotes(self, quotes: Sequence[CapacityQuote]) -> Sequence[int]:
        """Store quotes for some days; returns their numbers, by which they can be bought."""
        with self._database.writing() as connection:
            return purchases.keep_quotes(connection, quotes, self._clock.now())

    purchases = reads(purchases.list_purchases, once=True)

    # --- policies and settings --------------------------------------------------------------------------------------

    active_policy = reads(policies.active)
    policy_number = reads(policies.number, once=True)
    policy_history = reads(policies.history)

    def activate_policy(
        self, files: Mapping[str, str], *, by: str, note: str = "", base: int | None = None
    ) -> PolicyVersion:
        """Activate a set of files (name → text).

        Activating the set in force changes nothing. ``base``: the number of the version that must be in force (0:
        none); None: any. Raises `InvalidInput` if another one is.
        """
        with self._database.writing() as connection:
            if base is not None:
                policies.check_base(connection, base)
            return policies.activate(connection, files, by=by, at=self._clock.now(), note=note)

    def setting(self, key: str) -> str | None:
        """A setting of this store; None if it was never set."""
        with self.reading() as snapshot:
            return snapshot.setting(key)

    def set_setting(self, key: str, value: str) -> None:
        with self._database.writing() as connection:
            connection.execute(delete(SettingRow).where(SettingRow.key == key))
            connection.execute(insert(SettingRow).values(key=key, value=value))

    def settings_under(self, prefix: str) -> Mapping[str, str]:
        """The settings whose keys begin with ``prefix``."""
        with self._database.reading() as connection:
            query = select(SettingRow.key, SettingRow.value).where(SettingRow.key.startswith(prefix, autoescape=True))
            return {row.key: row.value for row in connection.execute(query)}

    def drop_setting(self, key: str) -> None:
        """Delete a setting of this store. Idempotent."""
        with self._database.writing() as connection:
            connection.execute(delete(SettingRow).where(SettingRow.key == key))

    def keep_setting(self, key: str, value: str) -> str:
        """Return the setting's value; sets it to ``value`` first if it was never set.

        Among concurrent processes, the first one decides.
        """
        if (current := self.setting(key)) is not None:
            return current  # no write lock for a setting that exists
        with self._database.writing() as connection:
            stored = connection.scalar(select(SettingRow.value).where(SettingRow.key == key))
            if stored is None:
                connection.execute(insert(SettingRow).values(key=key, value=value))
            return value if stored is None else stored


def open_store(url: str, *, clock: Clock) -> Store:
    """Open the store at ``url`` (``sqlite:///PATH`` or ``postgresql://…``); creates or upgrades it if necessary.

    Raises `StoreProblem` (newer version, read-only, locked, full, damaged, not a store, unreachable) with what to do,
    and `MissingExtra` without PostgreSQL's driver.
    """
    database = Database(url)
    try:
        ensure_current(database)
    except BaseException:
        database.close()
        raise
    return Store(database, clock)


@contextmanager
def writing_if(store: Store, view: JobView) -> Iterator[StoreWriter]:
    """A transaction in which ``view`` is the job's current view. Raises `StaleJobView` if it is not, and what
    `Store.writing` raises."""
    with store.writing() as tx:
        current = tx.job(view.id)
        if current is None or current.seq != view.seq:
            raise StaleJobView(f"job {view.id} has changed since event {view.seq}")
        yield tx


def append_if(store: Store, view: JobView, items: Sequence[tuple[int | None, EventBody]], at: datetime) -> JobView:
    """Append events to a job if ``view`` is its current view; returns the new one. Raises as `writing_if` and
    `StoreWriter.append`."""
    with writing_if(store, view) as tx:
        return tx.append(view.id, items, at)
