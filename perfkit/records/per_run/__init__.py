"""Parts of the record of a run, and what is predicted for one."""
