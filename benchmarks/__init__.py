"""Speed and memory compared with other packages, explanations and uncertainty; see README.md."""
