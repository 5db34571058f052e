"""Reading traces: files to columns of events. Knows formats, not meanings."""
