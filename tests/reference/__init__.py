"""Slow, literal restatements of published equations, and the graphs they are compared on."""
