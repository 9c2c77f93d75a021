"""A prior like broker/placement/strategy/prior.toml, fitted to recorded markets: for `tests.lab.placement --prior`.

python -m tests.lab.prior aws/ h100/ --resample 300 > prior.toml
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from broker.placement.strategy.regimes import HOUR, fit
from tests.lab import command
from tests.lab.traces import TracePrices, read_markets

FLICKER = 0.05
"""Weight of an assumed regime of which three spells of either kind end in an hour."""


def main(arguments: Sequence[str]) -> int:
    parser = command.parser(__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="TRACE", help="JSON traces, CSV files, or folders")
    parser.add_argument("--gang", type=int, default=1, help="machines that a job needs at once")
    parser.add_argument("--resample", type=float, default=300.0, metavar="SECONDS", help="tick of the fit")
    given = parser.parse_args(arguments)
    print(prior(given.paths, given.gang, given.resample), end="")
    return 0


def prior(paths: Sequence[Path], gang: int, gap: float) -> str:
    """The file for all pools under ``paths`` as one family; of a time between two ticks, the earlier one counts."""
    histories = []
    for market in read_markets(paths, TracePrices(gang=gang)):
        bits = np.array(market.pools[0].available)
        at = np.arange(0, len(bits) * market.gap_seconds, gap) // market.gap_seconds
        histories.append(bits[at.astype(int)])
    model = fit(histories, gap)
    ticks = np.array([len(history) for history in histories])
    weights = (model.weights * ticks[:, None]).sum(0) / ticks.sum() * (1 - FLICKER)
    bands, hours = len(model.shape.edges), model.persistence / HOUR
    rates = -np.log1p(-model.hazard) * HOUR / gap
    rows = [(weights[k], hours[k], *rates[k].tolist()) for k in range(len(weights))]
    rows.append((FLICKER, float(hours.mean()), [3.0] * bands, [3.0] * bands))
    parts = [f"pools = {len(histories)}\n"]
    for weight, lasts, down, up in rows:
        parts.append(f"\n[[regime]]\nweight = {weight:.6f}\nhours = {lasts:.1f}\n")
        parts += [f"{name} = {[round(rate, 4) for rate in of]}\n" for name, of in (("down", down), ("up", up))]
    return "".join(parts)


if __name__ == "__main__":
    command.run(main)
