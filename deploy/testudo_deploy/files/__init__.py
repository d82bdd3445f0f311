"""Files: bags, atomic writes, strict YAML.

In: values and paths.
Out: whole files, or an error that names file and key.
"""
