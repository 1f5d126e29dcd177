//! CUDA C++ sources.
