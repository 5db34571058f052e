"""Tables of what ranks did step by step, and beside their steps."""
