"""The reconciler: decides the next step of each job (pure) and takes it."""
