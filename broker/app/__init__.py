"""The use cases: what a person or a schedule can ask of gpubroker. Shells around the pure rooms."""
