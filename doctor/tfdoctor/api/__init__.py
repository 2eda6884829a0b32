"""tfdoctor for programs (`calls`) and in notebooks (`notebook`). `import tfdoctor` has it, loaded when it is used."""
