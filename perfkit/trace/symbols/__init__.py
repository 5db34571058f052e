"""Names of C++ functions as compilers write them into object files."""
