"""`python -m tfdoctor`."""

from tfdoctor.cli.main import run

if __name__ == "__main__":
    run()
