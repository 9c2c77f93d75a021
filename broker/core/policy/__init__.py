"""What policies see and answer, and what approvals cover. Pure."""
