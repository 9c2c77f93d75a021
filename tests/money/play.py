"""Random scripts for the money stage: drawn from a seed, played, and made short where they break the promise.

python -m tests.money --sequences 20000 --store sqlite
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.store import Store
from tests.money.moves import ASKS, JOB, MOVES, WEIGHTS, Move
from tests.money.promise import broken
from tests.money.tally import tally
from tests.money.world import MoneyWorld, Violation

Stage = tuple[Store, Callable[[], None]]
NAMES, CHANCES = list(WEIGHTS), list(WEIGHTS.values())


def drawn(seed: int, moves: int = 25) -> list[Move]:
    """The script of that seed: a policy and a job first, then any moves."""
    chance = random.Random(seed)
    # How often a job, a policy or a fate has the simplest values. It differs between scripts, so that some scripts are
    # about one thing and others about everything.
    plain = {name: chance.choice((0.3, 0.6, 0.9)) for name in ("submit", "policy", "fate")}
    script = [_move("policy", chance, plain), _move("submit", chance, plain)]
    more = chance.choices(NAMES, CHANCES, k=chance.randint(3, moves))
    script += [_move(name, chance, plain) for name in more]
    script = _about_approvals(script, chance, plain) if chance.random() < 0.2 else script
    return _with_arrays(script, random.Random(f"arrays of {seed}"), plain)


def _with_arrays(script: list[Move], chance: random.Random, plainly: Mapping[str, float]) -> list[Move]:
    """The script with arrays among its jobs. They are drawn separately, so the rest of a seed's script does
    not change.
    """
    plain = plainly["submit"]
    return [
        (name, {**said, "array": JOB["array"][0] if chance.random() < plain else chance.choice(JOB["array"])})
        if name == "submit"
        else (name, said)
        for name, said in script
    ]


def _about_approvals(script: list[Move], chance: random.Random, plainly: Mapping[str, float]) -> list[Move]:
    """The script with policies that require approvals, and answers soon after possible requests: by chance alone, an
    answer would hardly ever meet a pending request.
    """
    found: list[Move] = []
    for name, said in script:
        if name == "policy":
            key = chance.choice(list(ASKS))
            said = {**said, key: chance.choice(ASKS[key]), "withdrawn": False}
        found.append((name, said))
        if name in ("submit", "extend", "preempt", "price", "policy") and chance.random() < 0.7:
            found.append(("wait", {"span": "1m", "looks": 2}))
            found.append(_move("answer", chance, plainly))
    return found


def _move(name: str, chance: random.Random, plainly: Mapping[str, float]) -> Move:
    options = MOVES[name]
    plain = plainly.get(name, 0.0)
    return name, {
        key: values[0] if chance.random() < plain else chance.choice(values)
        for key, values in options.items()
        if key != "array"
    }


def replay(
    stage: Stage,
    script: Sequence[Move],
    ignoring: frozenset[str] = frozenset(),
    happened: Counter[str] | None = None,
) -> list[Violation]:
    """Play a script on an empty store; returns the parts of the promise that it broke.

    ``ignoring``: parts that are not checked; ``happened``: receives the events.
    """
    store, empty = stage
    empty()
    world = MoneyWorld(store, ignoring=ignoring)
    for name, said in script:
        world.do(name, said)
        if world.found:
            return world.found
    world.drain()
    if happened is not None:
        happened.update(tally(world))
    return broken(world)


def shortest(
    stage: Stage, script: Sequence[Move], rule: str, ignoring: frozenset[str] = frozenset(), tries: int = 400
) -> list[Move]:
    """A shorter and simpler script that breaks the same part of the promise."""
    best = list(script)

    def breaks(candidate: list[Move]) -> bool:
        nonlocal tries
        tries -= 1
        return tries >= 0 and any(one.rule == rule for one in replay(stage, candidate, ignoring))

    size = max(len(best) // 2, 1)
    while size:
        first = 0
        while first < len(best):
            candidate = best[:first] + best[first + size :]
            if breaks(candidate):
                best = candidate
            else:
                first += size
        size //= 2
    for number, (name, said) in enumerate(best):
        for key, values in MOVES[name].items():
            if said.get(key, values[0]) != values[0]:
                candidate = [*best[:number], (name, {**best[number][1], key: values[0]}), *best[number + 1 :]]
                if breaks(candidate):
                    best = candidate
    return best


def printed(script: Sequence[Move]) -> str:
    """The script as Python, without values that are the simplest ones."""
    lines = [f"    ({name!r}, {_telling(name, said)!r})," for name, said in script]
    return "\n".join(["SCRIPT = [", *lines, "]"])


def _telling(name: str, said: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if value != MOVES[name][key][0]}
