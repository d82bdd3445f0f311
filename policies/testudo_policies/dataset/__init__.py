"""Offline datasets from recorded runs: transitions with rewards of the scenario, composition profile, card."""
