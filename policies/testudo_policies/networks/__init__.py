"""Actor and critic, their encoding, and parameters as one agent.

In: raw signals.
Out: command distributions and values.
"""
