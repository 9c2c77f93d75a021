"""Speed-up with more GPUs, and the most economical number.

Model: Gunther's Universal Scalability Law. The speed-up of n GPUs over one is n ÷ (1 + σ(n−1) + κn(n−1)): σ is the
serial share of the work (Amdahl), κ the cost of communication per pair of GPUs and step.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import Estimate, EstimatedUsd, Figure, Hours, Share
from broker.economics.units import not_negative, positive, share, whole


@dataclass(frozen=True, slots=True)
class ScalingModel:
    """``serial``: share of the work that does not divide (0 to 1). ``communication``: cost of each pair, share of a
    step (0 or more)."""

    serial: Figure = 0.0
    communication: Figure = 0.0

    def __post_init__(self) -> None:
        share("serial fraction", self.serial)
        not_negative("communication", self.communication, most=1)

    def speedup(self, gpus: float) -> float:
        """Speed of ``gpus`` GPUs over one."""
        return gpus / (1 + self.serial * (gpus - 1) + self.communication * gpus * (gpus - 1))

    def marginal(self, gpus: float) -> float:
        """The marginal speed-up of a GPU at this size: the derivative."""
        cost = 1 + self.serial * (gpus - 1) + self.communication * gpus * (gpus - 1)
        return (1 - self.serial - self.communication * gpus * gpus) / (cost * cost)

    @property
    def peak(self) -> float:
        """The size beyond which more GPUs make it slower; infinite without communication cost."""
        if self.communication == 0:
            return math.inf
        return max(1.0, math.sqrt((1 - self.serial) / self.communication))


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """One cluster size: ``utilization`` is speed-up per GPU; time in hours, cost in USD."""

    gpus: int
    speedup: Estimate
    utilization: Share
    marginal: Estimate
    hours: Hours
    cost_usd: EstimatedUsd
    meets_deadline: bool


@dataclass(frozen=True, slots=True)
class ScalingCurve:
    """``efficient_gpus``: the cheapest size that meets the deadline (None when none does). ``diminishing_gpus``: the
    largest size at which one more GPU still adds its share (see the rules of thumb). ``fastest_gpus``: the size beyond
    which more GPUs make it slower. ``residual``: root mean square error of the fitted speed-ups, None when nothing was
    fitted."""

    efficient_gpus: int | None
    diminishing_gpus: int
    fastest_gpus: int
    model: ScalingModel
    residual: Estimate | None
    sizes: tuple[ScalingPoint, ...]

    @property
    def title(self) -> str:
        best = self.efficient_gpus
        return "Scaling: " + ("no size meets the deadline" if best is None else f"{best} GPUs are the cheapest on time")


def fit(measured: Iterable[tuple[int, float]]) -> tuple[ScalingModel, float]:
    """The model fitted to measured points (GPUs, throughput in any unit), and the error of its speed-ups.

    Least squares on n ÷ speed-up − 1, which is linear in both coefficients, with neither below 0. The smallest measured
    size is the reference and assumed to scale as the fit. Raises InvalidInput below two sizes.
    """
    points = sorted((whole("gpus", n), positive("throughput", rate)) for n, rate in measured)
    if len({n for n, _ in points}) < 2:
        raise InvalidInput("measured points: expected at least two different numbers of GPUs")
    base = points[0][1] / points[0][0]
    for _ in range(50):  # the speed of one GPU is known exactly when n = 1 was measured, else found by iteration
        model = _least_squares([(n, rate / base) for n, rate in points])
        new_base = points[0][1] / model.speedup(points[0][0])
        if abs(new_base - base) <= 1e-12 * base:
            break
        base = new_base
    errors = [model.speedup(n) - rate / base for n, rate in points]
    return model, math.sqrt(sum(error * error for error in errors) / len(errors))


def curve(
    model: ScalingModel,
    *,
    gpu_hours: float,
    usd_per_gpu_hour: float,
    sizes: Sequence[int],
    residual: float | None = None,
    assumptions: Assumptions = DEFAULTS,
) -> ScalingCurve:
    """Time and cost of a job of ``gpu_hours`` (on one GPU) for each cluster size.

    ``fixed_usd_per_hour`` of the assumptions: cost while the job runs, at any size. The economic size is the cheapest
    that meets ``deadline_hours``; of equals the smallest.
    """
    positive("work", gpu_hours, "GPU-hours")
    fixed_usd_per_hour, deadline_hours = assumptions.fixed_usd_per_hour, assumptions.deadline_hours
    if not sizes:
        raise InvalidInput("sizes: expected at least one number of GPUs")
    points = []
    for gpus in sorted({whole("gpus", size) for size in sizes}):
        speedup = model.speedup(gpus)
        hours = gpu_hours / speedup
        points.append(
            ScalingPoint(
                gpus=gpus,
                speedup=speedup,
                utilization=speedup / gpus,
                marginal=model.marginal(gpus),
                hours=hours,
                cost_usd=hours * (gpus * usd_per_gpu_hour + fixed_usd_per_hour),
                meets_deadline=deadline_hours is None or hours <= deadline_hours,
            )
        )
    in_time = [point for point in points if point.meets_deadline]
    worthwhile = [p.gpus for p in points if p.marginal >= assumptions.least_marginal_efficiency]
    return ScalingCurve(
        model=model,
        sizes=tuple(points),
        efficient_gpus=min(in_time, key=lambda point: (point.cost_usd, point.gpus)).gpus if in_time else None,
        diminishing_gpus=max(worthwhile, default=points[0].gpus),
        fastest_gpus=max(points, key=lambda point: (point.speedup, -point.gpus)).gpus,
        residual=residual,
    )


def _least_squares(speedups: Sequence[tuple[int, float]]) -> ScalingModel:
    """σ and κ ≥ 0 that minimize Σ (σ(n−1) + κn(n−1) − (n/S−1))²; of one unknown when the other would be negative."""
    rows = [(n - 1.0, n * (n - 1.0), n / s - 1.0) for n, s in speedups]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    ay, by = (sum(r[i] * r[2] for r in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    if determinant > 1e-12 * aa * bb:
        serial, pairs = (bb * ay - ab * by) / determinant, (aa * by - ab * ay) / determinant
        if serial >= 0 and pairs >= 0:
            return ScalingModel(min(serial, 1.0), min(pairs, 1.0))
    serial_only = ScalingModel(min(max(ay / aa, 0.0), 1.0), 0.0)
    pairwise_only = ScalingModel(0.0, min(max(by / bb, 0.0), 1.0)) if bb else serial_only

    def error(model: ScalingModel) -> float:
        return sum((model.serial * a + model.communication * b - y) ** 2 for a, b, y in rows)

    return min(serial_only, pairwise_only, key=error)
