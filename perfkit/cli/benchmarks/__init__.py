"""Commands that measure what the machine can do, apart from any run."""
