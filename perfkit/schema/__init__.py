"""The records that flow through perfkit: the manifest a run writes, the report an analysis returns, and others.

All are frozen and keyword-only. msgspec encodes and decodes them, checks them, and writes their JSON Schema, so what
stands here is the file format: a change to a file bumps its version and goes into CHANGELOG.md. Units are in the names;
`None` means "not known", and a field beside it or a finding says why.
"""
