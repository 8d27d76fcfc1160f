"""The public functions: signature, docstring and argument checks, once. What they call is found by the type of their arrays."""
