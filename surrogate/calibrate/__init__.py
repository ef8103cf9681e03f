"""Corrections of the simulator's costs, fitted to measured steps."""
