"""Traces of coming steps of a run that is in progress: asked for by `perfkit capture`, or by a condition."""
