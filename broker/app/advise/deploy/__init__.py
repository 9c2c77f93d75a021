"""The whole path from demand to a file that can be submitted: what `gpubroker advise deploy` walks."""
