"""Reports made for tests."""
