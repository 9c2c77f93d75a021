"""The tests. A package, so that a library that ships a package named ``tests`` is not imported instead."""
