"""Graphormer with SepNorm in pure torch: plain modules, tensors in, tensors out."""
