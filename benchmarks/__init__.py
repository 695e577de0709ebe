"""Speed and memory beside other implementations, explanations beside the truth; see README.md."""
