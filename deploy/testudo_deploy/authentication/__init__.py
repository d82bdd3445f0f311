"""Authentication of the messages between the processes of one fleet, with one secret key and without DDS security.

In: the fleet key, serialised messages.
Out: messages with authentication codes, or why one is refused.
"""
