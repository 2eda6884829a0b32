"""Scripts that another interpreter runs (Python 2.7 to 3.14); nothing here is imported by tfdoctor."""
