"""The store's front: transactions for the launcher, and one method a question for everybody else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from sqlalchemy import false, select

from broker.core.errors import UnknownName
from broker.core.job.reasons import Reason
from broker.core.market.judging import MarketJudge
from broker.core.market.offers import Offer, OfferQuery
from broker.core.values.clock import Clock
from broker.store.engine import leader
from broker.store.engine.database import Database
from broker.store.engine.leader import LeaderRole, StillLeading
from broker.store.engine.schema import ensure_current
from broker.store.engine.times import to_micros
from broker.store.jobs.journal import StoreReading, StoreWriting
from broker.store.market import polls
from broker.store.market.market_history import MarketHistory
from broker.store.policy import policies
from broker.store.records import AcceptedDoubts, PolicyVersion, PollRun, PollStatus
from broker.store.tables import SETTING

if TYPE_CHECKING:
    from broker.core.purchases.purchase_events import PurchaseEvent
    from broker.core.purchases.purchases import Purchase
    from broker.core.purchases.quotes import CapacityQuote
    from broker.economics.reserve.holdings import Holding, RecordedHolding
    from broker.ledger.journal import Journal
    from broker.store.access.access import AccessStore
    from broker.store.ledger.budget_marks import BudgetMarks
    from broker.store.ledger.charges import Charges
    from broker.store.market.watches import Watches
    from broker.store.outbox import Outbox
    from broker.store.proof import Proof

    def _is_a_journal(store: Store) -> Journal:
        """Nothing runs this: the type checker proves by it that the store is what the launcher asks for."""
        return store


class Store:
    """One open store: a `broker.ledger.journal.Journal` and the market, policy and setting tables.

    Thread-safe, and several processes may have the same store open. Every method is a transaction of its own and may
    raise `StoreProblem`.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @cached_property
    def market(self) -> MarketHistory:
        """What the market was, and how fresh its offers are."""
        return MarketHistory(self._database)

    @cached_property
    def watches(self) -> Watches:
        """What people want to be told of about prices."""
        from broker.store.market.watches import Watches  # most commands do without

        return Watches(self._database)

    @cached_property
    def outbox(self) -> Outbox:
        """Notices on their way to people."""
        from broker.store.outbox import Outbox  # most commands do without

        return Outbox(self._database)

    @cached_property
    def budget_marks(self) -> BudgetMarks:
        """Which marks budgets have passed."""
        from broker.store.ledger.budget_marks import BudgetMarks  # most commands do without

        return BudgetMarks(self._database)

    @cached_property
    def charges(self) -> Charges:
        """What providers charged."""
        from broker.store.ledger.charges import Charges  # most commands do without

        return Charges(self._database)

    @cached_property
    def access(self) -> AccessStore:
        """People, API tokens and the audit log."""
        from broker.store.access.access import AccessStore  # most commands do without

        return AccessStore(self._database)

    @property
    def where(self) -> str:
        """The file or, without its password, the URL."""
        return self._database.where

    def close(self) -> None:
        """Give every connection back."""
        self._database.close()

    # --- jobs and money ---------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[StoreReading]:
        """A consistent look; changes nothing."""
        with self._database.reading() as connection:
            yield StoreReading(connection)

    @contextmanager
    def writing(self) -> Iterator[StoreWriting]:
        """A serialised transaction: committed on leaving, rolled back on any exception. Does not nest."""
        with self._database.writing() as connection:
            yield StoreWriting(connection)

    @contextmanager
    def rehearsal(self) -> Iterator[Store]:
        """This store, to try something out: what is written in it is undone at the end of the block. Other writers wait
        meanwhile, so it is to be short. For one thread."""
        from broker.store.engine.rehearsal import rehearsed  # most commands do without

        with rehearsed(self._database) as database:
            yield Store(database, self._clock)

    def lead(self, duty: LeaderRole = LeaderRole.JOBS) -> AbstractContextManager[StillLeading | None]:
        """The lead over this store's jobs, or another duty, for the time of the block; None when another process has
        it."""
        return leader.lead(self._database, duty)

    def is_led(self, duty: LeaderRole = LeaderRole.JOBS) -> bool:
        """Whether a process has that lead now."""
        return leader.is_led(self._database, duty)

    def check_writable(self) -> None:
        """Raises `StoreProblem` for a store that can only be read, before anybody works for nothing."""
        with self._database.writing() as connection:
            connection.execute(SETTING.update().where(false()).values(value=SETTING.c.value))

    def rebuild(self) -> int:
        """Make every projection anew from events and entries; returns the number of jobs."""
        with self.writing() as journal:
            return journal.rebuild()

    def prove(self) -> Proof:
        """Compare every projection with what the events and entries come to, a few jobs a transaction, and make anew
        what differs."""
        from broker.store.proof import prove  # most commands do without

        return prove(self._database)

    # --- the market -------------------------------------------------------------------------------------------------

    def record_poll(
        self,
        provider: str,
        *,
        started: datetime,
        finished: datetime,
        offers: Iterable[Offer],
        skipped: Mapping[str, int] | None = None,
        error: str = "",
        complete: bool = True,
        status: PollStatus | None = None,
        hint: str = "",
        keep_unchanged: bool = True,
        speaks_of: datetime | None = None,
        samples: Mapping[str, Sequence[str]] | None = None,
        judge: MarketJudge | None = None,
    ) -> PollRun:
        """Store what one poll of ``provider`` (the adapter's name) saw; returns it as it is on record: how many
        different offers it saw, how many changed, and what was skipped, rows that made no sense to the store included.

        With ``complete``, offers it did not tell of are no longer current. ``status``: failed where there is an error,
        unless said. Without ``keep_unchanged``, the poll before this one is forgotten if it changed nothing and
        ended in the same way: for sources that are polled before each decision. ``speaks_of``: the moment that it tells
        of, where that is not its beginning, as of a dated file: by then had ended what it does not tell of, unless
        it was said to hold later. ``samples``: details of rows that were skipped, by reason. ``judge``: asked whether
        the answer is complete and its prices are of this world; what it does not believe is kept in doubt. All or
        nothing.
        """
        told = list(offers)  # nothing slow, such as a provider's generator, runs inside the transaction
        with self._database.writing() as connection:
            return polls.record_poll(
                connection,
                provider,
                started=started,
                finished=finished,
                offers=told,
                skipped=skipped or {},
                samples=samples or {},
                error=error,
                complete=complete,
                status=status or (PollStatus.FAILED if error else PollStatus.OK),
                hint=hint,
                keep_unchanged=keep_unchanged,
                speaks_of=speaks_of,
                judge=judge,
            )

    def accept_doubts(self, provider: str, pools: Sequence[str] = (), *, by: str, note: str = "") -> AcceptedDoubts:
        """Believe what is in doubt about an adapter's offers, all of it or that of ``pools``: offers missing from a
        suspect poll are gone, odd prices are true. On record with ``by``, the person. Raises `InvalidInput` where
        nothing is in doubt."""
        from broker.store.market import acceptances  # most commands do without

        with self._database.writing() as connection:
            at = to_micros(self._clock.now())
            return acceptances.accept(connection, provider, pools, by=by, note=note, at=at)

    def last_polls(self) -> Mapping[str, PollRun]:
        """The newest poll of each provider."""
        with self.reading() as look:
            return look.last_polls()

    def offers(self, query: OfferQuery | None = None) -> list[Offer]:
        """The current offers that match, as `StoreReading.offers`; all of them without a query."""
        with self.reading() as look:
            return look.offers(query or OfferQuery())

    def count_offers(self) -> int:
        """How many offers are current."""
        with self.reading() as look:
            return look.count_offers()

    def rejected_in_sql(self, query: OfferQuery, *, simulated: bool = False) -> Mapping[Reason, int]:
        """Why current offers are not among `offers`, counted. For figures that add up, ask all from one `reading`."""
        with self.reading() as look:
            return look.rejected_in_sql(query, simulated=simulated)

    # --- capacity that is held --------------------------------------------------------------------------------------

    def holdings(self) -> list[RecordedHolding]:
        """Owned machines, reservations and commitments on record, in the order in which they were added."""
        from broker.store.market import holdings  # most commands do without

        with self._database.reading() as connection:
            return holdings.holdings(connection)

    def add_holding(self, holding: Holding, *, by: str) -> RecordedHolding:
        """Put one on record."""
        from broker.store.market import holdings  # most commands do without

        with self._database.writing() as connection:
            return holdings.add(connection, holding, by=by, at=self._clock.now())

    def remove_holding(self, number: int, *, by: str) -> RecordedHolding:
        """Take one off the record and return it. Raises `UnknownName` when there is none of that number."""
        from broker.store.market import holdings  # most commands do without

        with self._database.writing() as connection:
            return holdings.remove(connection, number, by=by, at=self._clock.now())

    # --- purchases of capacity --------------------------------------------------------------------------------------

    def purchase(self, id: str) -> Purchase:
        """One purchase. Raises `UnknownName`."""
        with self.reading() as look:
            found = look.purchase(id)
        if found is None:
            raise UnknownName("purchase", id, [one.id for one in self.purchases(closed=True)])
        return found

    def purchases(self, *, closed: bool = False) -> Sequence[Purchase]:
        """The purchases of which something may still follow, oldest first; with ``closed`` the others, too."""
        from broker.store.purchases import purchases  # most commands do without

        with self._database.reading() as connection:
            return purchases.listed(connection, closed=closed)

    def purchase_events(self, id: str) -> Sequence[tuple[datetime, PurchaseEvent]]:
        """A purchase's events with their times (UTC), in order."""
        from broker.store.purchases import purchases  # most commands do without

        with self._database.reading() as connection:
            return purchases.events(connection, id)

    def keep_quotes(self, quotes: Sequence[CapacityQuote]) -> Sequence[int]:
        """Keep quotes for some days; their numbers, by which they can be bought."""
        from broker.store.purchases import purchases  # most commands do without

        with self._database.writing() as connection:
            return purchases.keep_quotes(connection, quotes, self._clock.now())

    def quote(self, number: int) -> CapacityQuote:
        """The quote of that number. Raises `UnknownName`."""
        from broker.store.purchases import purchases  # most commands do without

        with self._database.reading() as connection:
            return purchases.quote(connection, number)

    # --- policies and settings --------------------------------------------------------------------------------------

    def active_policy(self) -> PolicyVersion | None:
        """The policy set in force; None when none was ever activated."""
        with self._database.reading() as connection:
            return policies.active(connection)

    def policy_number(self) -> int:
        """The number of the policy version in force; 0 when none was ever activated."""
        with self.reading() as look:
            return look.policy_number()

    def activate_policy(self, files: Mapping[str, str], *, by: str, note: str = "") -> PolicyVersion:
        """Put a set of files (name → text) in force. Activating what is in force already changes nothing."""
        with self._database.writing() as connection:
            return policies.activate(connection, files, by=by, at=self._clock.now(), note=note)

    def policy_history(self) -> Sequence[PolicyVersion]:
        """Every policy version, newest first."""
        with self._database.reading() as connection:
            return policies.history(connection)

    def setting(self, key: str) -> str | None:
        """A fact about this store; None when it was never set."""
        with self.reading() as look:
            return look.setting(key)

    def set_setting(self, key: str, value: str) -> None:
        """Set a fact about this store."""
        with self._database.writing() as connection:
            connection.execute(SETTING.delete().where(SETTING.c.key == key))
            connection.execute(SETTING.insert().values(key=key, value=value))

    def keep_setting(self, key: str, value: str) -> str:
        """The fact as it is; set to ``value`` if it never was. Of several processes at once, one decides for all."""
        if (known := self.setting(key)) is not None:
            return known  # nobody is kept waiting for what is there already
        with self._database.writing() as connection:
            kept = connection.scalar(select(SETTING.c.value).where(SETTING.c.key == key))
            if kept is None:
                connection.execute(SETTING.insert().values(key=key, value=value))
            return value if kept is None else kept


def open_store(url: str, *, clock: Clock) -> Store:
    """Open the store at ``url`` (``sqlite:///PATH`` or ``postgresql://…``), created or upgraded if need be.

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
