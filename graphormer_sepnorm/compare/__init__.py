"""Comparison of norm arms: how their models differ in error and in geometry."""
