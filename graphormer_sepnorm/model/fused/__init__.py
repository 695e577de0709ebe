"""The model's operations made fast: one pass where the plain path has many, on a CPU or a GPU.

``cpu_*`` call the C functions of `kernels`, ``gpu_*`` Triton's. Each gives what the plain path
gives, which stands in the modules that call it and is taken wherever these cannot be.
"""
