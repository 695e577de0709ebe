"""Pages and pictures for people: explanations of predictions, predictions against labels."""
