"""What several tests use: builders of traces and records, launchers, a browser, an independent reference."""
