"""Runs the user's FP8 libraries for LoKA: requests in, replies out, one JSON object a line.

    protocol   lines <-> requests; what a reply looks like; who may write to stdout
    memory     handles <-> tensors, through CUDA IPC or a file
    adapters   one module a library: what it can run, why it cannot, its casts and its GEMM
    timing     an adapter's calls -> raw samples in microseconds
    sites      a linear by three kernels, in a compiled model -> the same
    __main__   the loop
"""
