"""Whose time it is: the module, Python function, operator and phase of each kernel (metrics.md section 20)."""
