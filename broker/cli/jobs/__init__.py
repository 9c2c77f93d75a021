"""Commands about jobs: plan, submit, jobs, approvals."""
