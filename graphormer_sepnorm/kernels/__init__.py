"""Compiled functions for the CPU; everything they do can also be done in torch and numpy."""
