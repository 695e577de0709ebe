"""A training from options to a model that is saved once."""
