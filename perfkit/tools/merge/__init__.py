"""All ranks of a run on one timeline, for Perfetto: native protobuf or Chrome JSON, written rank by rank."""
