"""The rules of policy files, a module per subject. Importing this package registers all of them."""

from importlib import import_module
from pkgutil import iter_modules

from policies.bound_rule import RULES

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

# Budgets have their own section; every other kind is a key of a guardrail.
__all__ = ["GUARDRAILS", "RULES"]

GUARDRAILS = tuple(sorted(RULES.keys() - {"budget"}))
