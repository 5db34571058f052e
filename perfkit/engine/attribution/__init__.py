"""Attribution of time: the module, Python function, operator and phase of each kernel (metrics.md section 20)."""
