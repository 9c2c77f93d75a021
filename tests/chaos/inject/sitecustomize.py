"""Imported by every Python process of a chaos run at its start: gives the object store its moods, in brokers and in
agents. Anything else is left alone."""

import importlib.abc
import importlib.util
import os
import random
import sys
import time
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SPOILT = ("get", "put", "head", "list", "list_with_delimiter", "delete")
ERRORS_IN_10 = 4
LONGEST_DELAY = 0.6


def spoil(obstore: ModuleType) -> None:
    """Its calls fail or dawdle while the run wants it so."""
    from tests.chaos.control import Control

    control = Control.from_environment()
    if control is None:
        return

    def moody(name: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if control.now("object_store_delays") is not None and random.random() < 0.3:
                time.sleep(random.uniform(0.05, LONGEST_DELAY))
                control.struck("object_store_delays")
            if control.now("object_store_errors") is not None and random.randrange(10) < ERRORS_IN_10:
                control.struck("object_store_errors")
                if name in ("put", "delete") and random.random() < 0.5:
                    real(*arguments, **options)  # it was done, and only the answer got lost
                raise obstore.exceptions.GenericError(f"503 Service Unavailable ({name}, chaos)")
            return real(*arguments, **options)

        return call

    for name in SPOILT:
        setattr(obstore, name, moody(name, getattr(obstore, name)))


class _Watch(importlib.abc.MetaPathFinder):
    """Waits for obstore to be imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "obstore":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                spoil(module)

            spec.loader.exec_module = loaded  # type: ignore[method-assign]  # a fault is put in
        return spec


if "CHAOS_CONTROL" in os.environ:
    sys.meta_path.insert(0, _Watch())
