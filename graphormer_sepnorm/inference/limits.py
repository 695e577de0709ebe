"""How much is predicted where the user says nothing."""

BATCH_SIZE = 128  # molecules computed at once
# Larger ones are predicted only if it is asked for: memory grows with the square of their size.
MAX_ATOMS = 500
