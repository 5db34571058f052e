"""What perfkit tells about a run, subject by subject; each is a package that imports no other."""
