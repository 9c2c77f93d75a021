"""The rules of policy files, one per file; `policies.registry` names them."""
