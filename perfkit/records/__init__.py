"""The records that flow through perfkit: the manifest a run writes, the report an analysis returns, and others.

All are frozen and keyword-only. msgspec encodes, decodes and validates them and writes their JSON Schema, so these
modules define the file formats: a change to a format bumps its version and goes into CHANGELOG.md. Units are in the
field names. `None` means "unknown"; a neighbouring field or a finding gives the reason.
"""
