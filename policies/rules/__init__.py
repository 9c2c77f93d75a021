"""The rules of policy files, a module per subject; `policies.registry` names them."""
