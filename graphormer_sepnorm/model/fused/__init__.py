"""The model's operations made fast on a CPU: one pass where the plain path has many.

They call the C functions of `kernels`. Each gives what the plain path gives, which stands in the
modules that call it and is taken wherever these cannot be.
"""
