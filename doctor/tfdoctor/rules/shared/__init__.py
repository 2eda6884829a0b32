"""What several rules share: pure questions to the facts. No module in here is a rule."""
