from typing import Any

from policies.bound_rule import RULES
from policies.rules import GUARDRAILS
from policies.schema import json_schema


def nulls(schema: Any) -> int:
    if isinstance(schema, dict):
        return (schema.get("type") == "null") + sum(nulls(value) for value in schema.values())
    return sum(nulls(item) for item in schema) if isinstance(schema, list) else 0


def test_editors_get_every_section_and_every_guardrail() -> None:
    schema = json_schema()

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(schema["properties"]) == {
        "version",
        "policy",
        "teams",
        "defaults",
        "capacity",
        "moves",
        "priorities",
        "assumptions",
        "budgets",
        "guardrails",
    }
    assert schema["required"] == ["version"]
    guardrail = schema["$defs"]["Guardrail"]
    assert set(GUARDRAILS) < set(guardrail["properties"])
    assert guardrail["oneOf"] == [{"required": [kind]} for kind in GUARDRAILS]
    assert guardrail["additionalProperties"] is False
    assert "offer.{provider, region," in guardrail["properties"]["when"]["description"]
    assert nulls(schema) == 0, "a key without a value is a mistake in a policy file"


def test_every_rule_has_a_configuration_that_is_documented() -> None:
    for kind, rule in RULES.items():
        assert rule.kind == kind
        assert rule.Config.model_json_schema().get("description"), kind
