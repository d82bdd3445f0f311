"""The mapping file: what files, columns and topics of others mean.

In: a YAML mapping.
Out: checked channels, units and frames.
"""
