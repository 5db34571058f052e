"""Recording a run: profiler session, step clock, export, and the manifest."""
