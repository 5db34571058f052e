"""Recording a run: profiler, step clock, export, and the manifest."""
