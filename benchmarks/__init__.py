"""Speed and memory beside other implementations; see README.md in this folder."""
