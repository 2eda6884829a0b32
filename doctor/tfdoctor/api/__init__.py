"""The API for Python programs (`calls`) and notebooks (`notebook`), imported when it is first used."""
