"""What a trained model is used for: checkpoints and prediction, without Lightning."""
