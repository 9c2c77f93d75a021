"""What the first look at the market says of each source."""

from broker.cli.prices.poll import first_poll_text
from broker.market.poller import PollResult
from broker.store.records import PollStatus
from tests.contracts.provider_contract import NOW


def test_only_who_failed_gave_no_answer() -> None:
    told = _result("vast", PollStatus.OK, offers=5)
    broken, bare = _result("oci", PollStatus.FAILED), _result("gpuhunt", PollStatus.EXTRA_MISSING)
    assert "5 live offers of vast. No answer from oci. " in first_poll_text([told, broken, bare])
    assert "No answer" not in first_poll_text([told, bare])
    assert "oci cannot be reached" in first_poll_text([broken, bare])
    assert "cannot be reached" not in first_poll_text([bare])


def _result(name: str, status: PollStatus, offers: int = 0) -> PollResult:
    return PollResult(name, NOW, NOW, offers, offers, status=status)
