"""The shield's test protocol: cells, worlds, episodes, table, and what the shield is compared with."""
