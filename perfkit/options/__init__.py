"""Every option of a recording, declared once, and which of them identify a configuration."""
