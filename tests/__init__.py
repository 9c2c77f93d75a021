"""The tests. A package, so that no library that ships a package of this name is taken for it."""
