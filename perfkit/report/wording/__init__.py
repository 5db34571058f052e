"""The words of what the analysis found: no other part of perfkit makes sentences of its facts."""
