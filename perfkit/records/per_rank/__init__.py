"""Parts of the record of a rank."""
