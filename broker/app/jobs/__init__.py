"""Use cases of jobs: plan, submit, list, control, approve, queue."""
