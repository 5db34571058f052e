"""Reading traces: files to columns of events. It knows the file format; analysis knows the meaning."""
