"""Tables by dimension of parallelism: collectives, pipelines, divided work, sharded parameters."""
