# Installs into a machine image what SkyPilot's own images for AWS bring along, so that a node needs no network:
# a login user, SkyPilot's runtime (as it installs it itself), and the wheels that the agent's setup asks pip for.
# Runs in a chroot, with this machine's network. Variables: NODE_USER, UV (the program), WHEELS, RUNTIME (words for
# uv pip install), and where the package index is.
set -eu
id -u "$NODE_USER" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash --password '*' "$NODE_USER"
mkdir -p /opt/image /etc/sudoers.d
cp "$UV" /opt/image/uv
cp -r "$WHEELS" /opt/image/wheels
printf '[global]\nno-index = true\nfind-links = /opt/image/wheels\n' > /opt/image/pip.conf
echo "$NODE_USER ALL=(ALL) NOPASSWD:ALL" > /etc/sudoers.d/90-node
ssh-keygen -A
runuser -u "$NODE_USER" -- env HOME="/home/$NODE_USER" bash -eu <<'X'
umask 022
mkdir -p ~/.local/bin ~/.aws ~/.sky
/opt/image/uv venv --quiet --seed --python /usr/bin/python3 ~/skypilot-runtime
VIRTUAL_ENV=~/skypilot-runtime UV_LINK_MODE=copy /opt/image/uv pip install --quiet --no-cache --compile-bytecode $RUNTIME
# Each of its many short Pythons imports SkyPilot; a fifth of that is the collection of garbage that is none.
for place in ~/skypilot-runtime/lib/python3*/site-packages; do
  printf 'import gc\n\ngc.set_threshold(1_000_000)\n' > "$place/sitecustomize.py"
done
# SkyPilot asks for a Python 3.10, which it would have from the internet.
cat > ~/.local/bin/uv <<'K'
#!/bin/bash
given=()
for one in "$@"; do [ "$one" = 3.10 ] && one=/usr/bin/python3; given+=("$one"); done
export UV_OFFLINE=1 UV_NO_INDEX=1 UV_FIND_LINKS=/opt/image/wheels UV_PYTHON_DOWNLOADS=never
exec /opt/image/uv "${given[@]}"
K
chmod 755 ~/.local/bin/uv
X
mv /opt/image/pip.conf /etc/pip.conf
