"""Chemistry: text to molecules, molecules to codes, scaffolds, fingerprints. The RDKit room."""
