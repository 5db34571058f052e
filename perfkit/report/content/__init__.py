"""What a report consists of before it is drawn: key-value lines, tables and findings."""
