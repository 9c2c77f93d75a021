"""Sources of offers. See README.md next to this file."""
