"""Run folders, discovery of runs under a path, file names, and the cache of trace summaries."""
