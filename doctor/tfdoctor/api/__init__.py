"""The API for Python programs (`calls`) and notebooks (`notebook`). `import tfdoctor` loads it at its first use."""
