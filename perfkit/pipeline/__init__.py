"""Where reading meets analysis: the only package that does both."""
