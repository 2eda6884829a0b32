"""The command line of tfdoctor."""
