"""The collectives of a trace: what each is, who issued it, and which dimension of parallelism it serves."""
