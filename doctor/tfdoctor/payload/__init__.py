"""Scripts that run in another interpreter (Python 2.7 to 3.14). tfdoctor never imports them."""
