"""Making providers by name."""

import subprocess
import sys
from importlib import import_module

import pytest

from broker.core.errors import InvalidInput, UnknownName
from broker.core.values.clock import ManualClock
from providers.owned import Owned
from providers.registry import PROVIDERS, build
from providers.sandbox import SandboxProvider
from tests.contracts.provider_contract import NOW, poll

CLOCK = ManualClock(NOW)
WITHOUT_NETWORK = ("owned", "pricebook", "sandbox")  # they ask no service, and offer something without settings
WITHOUT_NETWORK_AND_ROWS = ("kubernetes", "slurm")  # they ask no service, and offer nothing by themselves


@pytest.mark.parametrize("name", WITHOUT_NETWORK)
def test_what_needs_no_network_offers_something_without_settings(name: str) -> None:
    assert poll(build(name, clock=CLOCK))


@pytest.mark.parametrize("name", sorted({*PROVIDERS} - {*WITHOUT_NETWORK, *WITHOUT_NETWORK_AND_ROWS}))
def test_the_others_say_where_they_ask_and_which_setting_changes_it(name: str) -> None:
    provider = build(name, clock=CLOCK)
    setup = getattr(provider, "describe_setup", None) or import_module(type(provider).__module__).describe_setup
    assert setup()["endpoints"]
    for place in setup()["endpoints"].values():
        assert place["url"]
        assert place["setting"].startswith(("GPUBROKER_PROVIDERS__", "AWS_ENDPOINT_URL", "AZURE_AUTHORITY_HOST"))
    for login in setup()["logins"].values():
        assert {"found", "how"} <= set(login)


def test_settings_come_as_the_settings_file_has_them() -> None:
    sandbox = build(
        "sandbox", clock=CLOCK, settings={"scenario": "demo", "seed": 5, "starts_at": "2026-02-01T00:00:00Z"}
    )
    assert isinstance(sandbox, SandboxProvider)
    assert (sandbox.world.scenario.name, sandbox.world.seed) == ("demo", 5)
    assert isinstance(build("owned", clock=CLOCK, settings={"watts": 350, "usd_per_kwh": 0.2}), Owned)


def test_a_setting_that_is_not_one_is_named_with_the_one_meant() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'watts'") as caught:
        build("owned", clock=CLOCK, settings={"wats": 3})
    assert caught.value.where == "[providers.owned]"
    assert "usd_per_kwh" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "settings", "key"),
    [
        ("owned", {"pue": 0.5}, "pue"),
        ("owned", {"watts": "many"}, "watts"),
        ("sandbox", {"starts_at": "2026-02-01T00:00:00"}, "starts_at"),
        ("sandbox", {"seed": -1}, "seed"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(name: str, settings: dict[str, object], key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build(name, clock=CLOCK, settings=settings)
    assert [problem.key for problem in caught.value.problems] == [key]


def test_an_unknown_provider_is_named_with_the_one_meant() -> None:
    with pytest.raises(UnknownName, match="did you mean 'owned'"):
        build("ownd", clock=CLOCK)


def test_making_providers_imports_nothing_that_only_a_poll_needs() -> None:
    code = (
        "import sys; from broker.core.values.clock import SystemClock; from providers.registry import PROVIDERS, build;"
        "[build(name, clock=SystemClock()) for name in PROVIDERS];"
        "print({*'pynvml httpx boto3 azure google.auth google.cloud nebius gpuhunt requests'.split()} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
