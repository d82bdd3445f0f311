"""The test fleet, its observer, and faulty policies.

In: a fault to inject.
Out: recorded messages and events.
"""
