"""Compiling: array bodies of one robot as one call of machine code, and the same body in NumPy where there is none.

In: a body written against the array API, and example arguments. Out: the same function, compiled and checked.
"""
