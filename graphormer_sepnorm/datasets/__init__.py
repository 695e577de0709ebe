"""Data sets in three splits: ZINC, ZINC-subset, ogbg-molhiv, the sample, a user's own."""
