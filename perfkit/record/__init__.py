"""Everything that records: training workloads, scripts and loops under the profiler, on one rank or many."""
