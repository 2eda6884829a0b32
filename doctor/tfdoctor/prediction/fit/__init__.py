"""Decide whether a TensorFlow release fits a machine, and which release fits best.

The functions read nothing but compat/, and each reason names its source there. The planner, the remedies of the rules and
the compatibility matrix use them.
"""
