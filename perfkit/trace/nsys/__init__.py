"""Read recordings of Nsight Systems, from what `nsys export` writes (SQLite), into the columns of a trace."""
