"""Documents of records other than a report: a comparison, a history, another tool's table."""
