"""Arguments of events as sparse columns: of collectives, operators, kernels and copies."""
