"""Documents of records other than a report: a comparison, a history, an external tool's table."""
