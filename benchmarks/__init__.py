"""Speed and memory compared with other implementations, explanations with the truth; see README.md."""
