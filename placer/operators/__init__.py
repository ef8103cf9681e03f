"""Operators: what decides an op's time, how it is measured, and the rows of the dataset."""
