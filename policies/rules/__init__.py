"""The rules of policy files, one a file; `policies.registry` names them."""
