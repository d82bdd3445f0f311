"""Our environments in the interfaces of other libraries, for their trainers."""
