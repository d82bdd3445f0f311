"""Support for JAX: devices and pytrees."""
