"""Sources of offers. See README.md beside this file."""
