"""Figures in the forms of monitoring systems."""
