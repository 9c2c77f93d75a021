"""The steps of `gpubroker advise deploy`, from the demand to files that can be submitted."""
