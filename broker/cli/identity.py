"""The user of this process: the only place that reads the operating system's user. The command line and the Python
interface act as that person."""

import os
from pwd import getpwuid

from broker.core.actors import Actor, EntryPoint, Role

_SUPERUSER = 0  # its user ID


def process_actor(origin: EntryPoint = EntryPoint.COMMAND_LINE) -> Actor:
    """The operating-system user of this process, and root as an administrator. LOGNAME and USER are not read, because
    anybody may set them.

    This distinguishes the people of one machine. If several machines share a store, their administrators must be
    trusted: each can act as any user of it.
    """
    number = os.getuid()
    try:
        name = getpwuid(number).pw_name
    except KeyError:  # a user ID without a name, as in containers
        name = f"uid-{number}"
    roles = frozenset({Role.ADMINISTRATOR}) if number == _SUPERUSER else frozenset[Role]()
    return Actor(name, roles, origin)
