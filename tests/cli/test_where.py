"""Filters of lists: ``--where provider=aws,region=eu-*``."""

import pytest

from tests.cli.conftest import Gpubroker


def test_terms_are_joined_by_and_values_of_a_key_by_or(gpubroker: Gpubroker) -> None:
    def places(*where: str) -> set[tuple[str, str]]:
        words = [word for text in where for word in ("--where", text)]
        found = gpubroker("offers", "--all", "--json", *words).json["offers"]
        return {(one["provider"], one["region"].partition("-")[0]) for one in found}

    both = places("provider=aws, provider=azure")
    assert {provider for provider, _ in both} == {"aws", "azure"}
    assert places("provider=a*,region=eu-*") == {("aws", "eu")}
    assert places("provider=a*", "region=eu-*") == {("aws", "eu")}
    assert places("provider=aws", "provider=azure") == both
    assert places("Provider=aws,capacity-type=on*") <= both


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("regon=eu-*", "--where: unknown key 'regon'; did you mean 'region'?", "keys: provider, region, instance_type"),
        ("colour=red", "--where: unknown key 'colour'", "price_kind; several values: provider=A,provider=B"),
        ("provider=aws,azure", "--where: expected KEY=VALUE; got 'azure'", "several values: provider=A,provider=B"),
        ("provider=", "--where: expected KEY=VALUE; got 'provider='", "keys:"),
        ("", "--where: expected KEY=VALUE; got ''", "keys:"),
        ("region=eu-[12", "--where: the pattern 'eu-[12' has an unclosed bracket", "keys:"),
        ("capacity_type=x*", "unknown capacity type 'x*'", "known: on_demand, owned, reserved, spot"),
    ],
)
def test_a_wrong_filter_is_refused_with_the_keys(gpubroker: Gpubroker, text: str, message: str, hint: str) -> None:
    done = gpubroker("offers", "--where", text)
    assert done.code == 2
    assert f"error: {message}\n" in done.err
    assert hint in done.err
