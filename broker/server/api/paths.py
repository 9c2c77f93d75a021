"""Constants that the server and its client programs share. Imports nothing: clients lack the server's packages."""

VERSION = "/api/v1"
DEVICE_AUTHORIZATION, TOKEN, REVOCATION = (f"{VERSION}/{name}" for name in ("device_authorization", "token", "revoke"))
CONTENTS = f"{VERSION}/contents"
ADMISSION = f"{VERSION}/admission/"
DEVICE_PAGE = "/device"
"""The page where a person enters the code of a program that logs in."""
GRANT = "urn:ietf:params:oauth:grant-type:device_code"
CLIENT = "gpubroker"
"""The client id of the command line. It is not a secret: a program with it has only the permissions that a person
grants it."""
