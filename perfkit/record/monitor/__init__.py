"""The monitor: a record of every step of a run, written as it ends (docs/monitor.md)."""
