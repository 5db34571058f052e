"""Servers for the browser, on loopback: one trace for the Perfetto UI, and a folder of runs."""
