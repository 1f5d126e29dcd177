"""LoKA in Python. Importing it imports nothing else: PyTorch is loaded by what needs it."""

__version__ = "0.1.0"
