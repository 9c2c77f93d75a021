"""The products that AWS sells besides capacity blocks: reservations now and later, savings plans.

Written according to botocore's models and their documentation; `AwsCloud` checks every request and answer against them.
Tests set what is for sale, the state of new orders, and how often lists omit new orders.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

_DRY = ("DryRunOperation", 412, "Request would have succeeded, but DryRun flag is set.")
Fault = Callable[..., Any]


@dataclass
class AwsShop:
    """``now``: AWS's clock. ``reserved_as``, ``planned_as``: the states of new reservations (None: by date) and plans.
    ``unlisted``: the number of lists of orders that omit new ones. ``quote_hours``: the time for which a cancellation
    is charged; ``quote_state``: of a new cancellation quote. ``returnable``: how long plans can be returned.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    reserved_as: str | None = None
    planned_as: str = "payment-pending"
    unlisted: int = 0
    quote_hours: int = 48
    quote_state: str = "active"
    quotes: dict[str, dict[str, Any]] = field(default_factory=dict)
    returnable: timedelta = timedelta(days=7)
    tokens: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)

    def listed(self, rows: list[dict[str, Any]], *, new: bool = True) -> list[dict[str, Any]]:
        """The rows; new ones are omitted as long as ``unlisted`` says."""
        if new and rows and self.unlisted > 0:
            self.unlisted -= 1
            return []
        return rows

    # --- capacity reservations --------------------------------------------------------------------------------------

    def reserve(self, asked: dict[str, Any], known: list[dict[str, Any]], fault: Fault, unsold: Any) -> Any:
        """CreateCapacityReservation. Idempotent for the same token with the same request."""
        if asked.get("DryRun"):
            return fault(*_DRY)
        wanted = {name: value for name, value in asked.items() if name not in ("ClientToken", "DryRun")}
        if (token := asked.get("ClientToken")) and (before := self.tokens.get(token)):
            if before[0] != wanted:
                return fault("IdempotentParameterMismatch", 400, "the token was used with other parameters")
            return {"CapacityReservation": before[1]}
        if unsold is not None:
            return unsold
        later = "StartDate" in asked
        if later != ("CommitmentDuration" in asked) or (later and asked.get("InstanceMatchCriteria") != "targeted"):
            return fault("InvalidParameterCombination", 400, "a future-dated reservation is committed and targeted")
        row = {
            "CapacityReservationId": f"cr-{len(known):017x}",
            "InstanceType": asked["InstanceType"],
            "InstancePlatform": asked["InstancePlatform"],
            "AvailabilityZoneId": asked["AvailabilityZoneId"],
            "TotalInstanceCount": asked["InstanceCount"],
            "AvailableInstanceCount": asked["InstanceCount"],
            "State": self.reserved_as or ("assessing" if later else "active"),
            "StartDate": _utc(asked["StartDate"]) if later else self.now(),
            "CreateDate": self.now(),
            "EndDate": _utc(asked["EndDate"]),
            "EndDateType": asked["EndDateType"],
            "ReservationType": "default",
            "InstanceMatchCriteria": asked.get("InstanceMatchCriteria", "open"),
            "Tags": [tag for one in asked.get("TagSpecifications", []) for tag in one["Tags"]],
        }
        if later:
            row["CommitmentInfo"] = {"CommittedInstanceCount": asked["InstanceCount"]}
        known.append(row)
        if token:
            self.tokens[token] = (wanted, row)
        return {"CapacityReservation": row}

    def cancel(self, asked: dict[str, Any], known: list[dict[str, Any]], fault: Fault) -> Any:
        """CancelCapacityReservation, with the states that its documentation names."""
        row = next((one for one in known if one["CapacityReservationId"] == asked["CapacityReservationId"]), None)
        if row is None:
            return fault("InvalidCapacityReservationId.NotFound", 400, "no such reservation")
        committed = "CommitmentInfo" in row
        if row["ReservationType"] == "capacity-block" or row["State"] not in (
            "assessing",
            "scheduled",
            "active",
            "delayed",
        ):
            return fault("InvalidCapacityReservationState", 400, f"it is {row['State']}")
        if committed and row["State"] in ("scheduled", "active"):
            quote = self.quotes.get(asked.get("QuoteId", ""))
            if quote is None or asked.get("ApplyCancellationCharges") != "commitment-wind-down":
                return fault("OperationNotPermitted", 400, "a cancellation quote is required")
            if self.now() > quote["ExpirationTime"]:
                return fault("CancellationQuoteExpired", 400, "the quote has expired")
        row["State"] = "cancelled"
        return {"Return": True}

    def cancellation_quote(self, asked: dict[str, Any], known: list[dict[str, Any]]) -> dict[str, Any]:
        row = next(one for one in known if one["CapacityReservationId"] == asked["CapacityReservationId"])
        quote = {
            "CapacityReservationCancellationQuoteId": f"crcq-{len(self.quotes)}",
            "CapacityReservationId": row["CapacityReservationId"],
            "CreateTime": self.now(),
            "ExpirationTime": self.now() + timedelta(days=1),
            "QuoteState": self.quote_state,
            "CancellationTerms": [
                {
                    "CancellationType": "commitment-wind-down",
                    "CommittedInstanceCount": row["TotalInstanceCount"],
                    "ChargeCommitmentDurationHours": self.quote_hours,
                }
            ],
        }
        self.quotes[str(quote["CapacityReservationCancellationQuoteId"])] = quote
        told = {**quote, "CancellationTerms": []} if self.quote_state == "pending" else quote
        return {"CapacityReservationCancellationQuote": told}

    # --- savings plans ----------------------------------------------------------------------------------------------

    def plan(
        self, asked: dict[str, Any], plans: list[dict[str, Any]], rates: list[dict[str, Any]], fault: Fault
    ) -> Any:
        """CreateSavingsPlan."""
        wanted = {name: value for name, value in asked.items() if name != "clientToken"}
        if (token := asked.get("clientToken")) and (before := self.tokens.get(token)):
            if before[0] != wanted:
                return fault("ValidationException", 400, "the token was used with other parameters")
            return {"savingsPlanId": before[1]["savingsPlanId"]}
        sold = [one["savingsPlanOffering"] for one in rates]
        offered = next((one for one in sold if one["offeringId"] == asked["savingsPlanOfferingId"]), None)
        if offered is None:
            return fault("ResourceNotFoundException", 404, "no such offering")
        if ("upfrontPaymentAmount" in asked) != (offered["paymentOption"] == "Partial Upfront"):
            return fault("ValidationException", 400, "upfrontPaymentAmount is for Partial Upfront only")
        later = "purchaseTime" in asked
        starts = _utc(asked["purchaseTime"]) if later else self.now()
        ends = starts + timedelta(seconds=offered["durationSeconds"])
        row = {
            "offeringId": offered["offeringId"],
            "savingsPlanId": f"sp-{len(plans)}",
            "start": f"{starts:%Y-%m-%dT%H:%M:%S}.000Z",
            "end": f"{ends:%Y-%m-%dT%H:%M:%S}.000Z",
            "state": "queued" if later else self.planned_as,
            "savingsPlanType": offered["planType"],
            "paymentOption": offered["paymentOption"],
            "productTypes": ["EC2"],
            "currency": "USD",
            "commitment": asked["commitment"],
            "termDurationInSeconds": offered["durationSeconds"],
            "tags": asked.get("tags", {}),
        }
        if self.returnable and not later:
            row["returnableUntil"] = f"{starts + self.returnable:%Y-%m-%dT%H:%M:%S}.000Z"
        plans.append(row)
        if token:
            self.tokens[token] = (wanted, row)
        return {"savingsPlanId": row["savingsPlanId"]}

    def undo_plan(self, id: str, plans: list[dict[str, Any]], fault: Fault, *, queued: bool) -> Any:
        """ReturnSavingsPlan and DeleteQueuedSavingsPlan."""
        row = next((one for one in plans if one["savingsPlanId"] == id), None)
        if row is None or row["state"] != ("queued" if queued else "active"):
            return fault("ValidationException", 400, "it is in another state")
        row["state"] = "queued-deleted" if queued else "returned"
        return {} if queued else {"savingsPlanId": id}


def _utc(at: datetime) -> datetime:
    """The time in UTC: moto's parsers drop the time zone."""
    return at if at.tzinfo else at.replace(tzinfo=UTC)
