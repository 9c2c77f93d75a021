# Starts one node: a machine image below, a layer of its own above, its own processes, mounts and host name.
# Runs in the node's network namespace and in new mount, pid and UTS namespaces. Variables: NODE (its folder), IMAGE,
# NAME and ADDRESS (its own), NODE_USER, MINUTE (seconds that a minute of `shutdown` takes), DEAF (1: nobody can log in).
set -eu
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$IMAGE,upperdir=$NODE/upper,workdir=$NODE/work" "$NODE/root"
root="$NODE/root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
# What lies on the machine that pretends to be a cloud is not on its nodes.
for hidden in run tmp root sys; do mount -t tmpfs -o mode=0755 tmpfs "$root/$hidden"; done
chmod 1777 "$root/tmp"
# Kept, as host names of package indexes and the like stand there; what the agent looks at, in place of the kernel's.
mkdir -p "$root/run/sshd" "$root/sys/class/dmi/id"
echo 'Amazon EC2' > "$root/sys/class/dmi/id/sys_vendor"
hostname "$NAME"
# Its own name is its own address: Ray takes the address of the machine from there.
printf '127.0.0.1 localhost\n%s %s\n' "$ADDRESS" "$NAME" > "$root/etc/hosts"
install -d -m 700 "$root/home/$NODE_USER/.ssh"
cp "$NODE/authorized_keys" "$root/home/$NODE_USER/.ssh/authorized_keys"
cp -r "$NODE/home/." "$root/home/$NODE_USER/"
chown -R --reference="$root/home/$NODE_USER" "$root/home/$NODE_USER/.ssh" "$root/home/$NODE_USER/.aws"
# Without systemd: the power is off once the mark is there, which the cloud sees in the node's layer.
cat > "$root/usr/local/sbin/shutdown" <<X
#!/bin/sh
set -eu
case "\$1" in
-P) minutes=\${2#+}; (sleep "\$(awk "BEGIN {print \$minutes * $MINUTE}")" && touch /var/powered-off) & echo \$! > /run/shutdown.pid ;;
-c) kill "\$(cat /run/shutdown.pid)" && rm /run/shutdown.pid ;;
*) echo "shutdown: not known here: \$*" >&2; exit 1 ;;
esac
X
chmod 755 "$root/usr/local/sbin/shutdown"
cp "$NODE/first-boot.sh" "$root/var/first-boot.sh"
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# As cloud-init does: beside the first logins, as root, and no command stops the next.
chroot "$root" /usr/bin/env -i PATH=$path sh /var/first-boot.sh &
if [ "$DEAF" = 1 ]; then exec sleep infinity; fi
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /usr/sbin/sshd -D -e -o UsePAM=no -o PidFile=/run/sshd.pid
