"""Traces made for tests, and what reads them independently of perfkit."""
