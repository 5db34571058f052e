"""The validator of JSON Schema, imported without the grammars of internationalised addresses.

jsonschema imports `rfc3987_syntax` where that is installed (JupyterLab brings it), which compiles 38 grammars:
seconds in each process. They check formats, which no schema of perfkit contains.
"""

import sys

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.setitem(sys.modules, "rfc3987_syntax", None)
    import jsonschema

__all__ = ["jsonschema"]
