"""An app for tests: its server lies."""
