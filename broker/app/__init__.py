"""The use cases: what a person or a schedule can ask of gpubroker. They do the input and output around the pure
packages."""
