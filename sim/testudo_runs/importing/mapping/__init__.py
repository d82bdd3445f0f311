"""Mapping files: the meaning of files, columns and topics of external recordings.

In: a YAML mapping.
Out: checked channels, units and frames.
"""
