"""What if: a workload on a virtual clock, decided by the code that decides for real jobs. Pure."""
