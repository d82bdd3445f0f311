"""Physics below a scenario: kinematic tier, MuJoCo tiers, drones.

In: commands (D, N, E) and world parameters.
Out: true states and contacts at every physics step.
"""
