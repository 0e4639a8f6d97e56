#!/bin/sh
# Turns the freshly unpacked packages into the root folder that every test host starts from; mmdebstrap calls it.
set -eu
root=$1
offline="libjemalloc2 libtcmalloc-minimal4 libpam-systemd"

# Packages that tests install, kept in a small repository of the host's own, so that they need no network.
mkdir -p "$root/opt/packages"
chroot "$root" sh -eu -c "cd /opt/packages && apt-get -qq download -o APT::Sandbox::User=root $offline
    apt-cache show --no-all-versions $offline | sed 's|^Filename: .*/|Filename: ./|' > Packages"
mkdir "$root/etc/apt/network"
find "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d" -type f -exec mv {} "$root/etc/apt/network/" \; 2>/dev/null || true
echo 'deb [trusted=yes] file:/opt/packages ./' > "$root/etc/apt/sources.list.d/offline.list"
rm -rf "$root/var/lib/apt/lists"
chroot "$root" apt-get -qq update

# Keys are given to each host when it starts: its own host key, and the rig's key to enter it.
rm -f "$root"/etc/ssh/ssh_host_*
cat > "$root/etc/ssh/sshd_config.d/10-rig.conf" <<'CONFIG'
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
PrintMotd no
MaxStartups 100:30:200
MaxSessions 100
# The default, sntrup761x25519, takes twice the processor time of all the rest of a login.
KexAlgorithms curve25519-sha256
CONFIG
# Nobody reads it, and each login runs it.
rm -f "$root/etc/update-motd.d/10-uname"
chroot "$root" useradd --create-home --shell /bin/bash admin
chroot "$root" useradd --create-home --shell /bin/bash nosudo
echo 'admin ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/admin"
chmod 440 "$root/etc/sudoers.d/admin"

# What makes no sense in namespaces, or costs time at every start.
for unit in getty@tty1.service console-getty.service getty-static.service systemd-udevd.service \
    systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service systemd-firstboot.service \
    systemd-remount-fs.service sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
    sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount proc-sys-fs-binfmt_misc.automount \
    systemd-networkd-wait-online.service systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer \
    dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer systemd-update-utmp.service \
    systemd-update-utmp-runlevel.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
mkdir -p "$root/etc/systemd/system-generators" "$root/etc/systemd/system/systemd-logind.service.d"
for disk in cryptsetup debug getty gpt-auto hibernate-resume integritysetup run system-update veritysetup; do
    ln -s /dev/null "$root/etc/systemd/system-generators/systemd-$disk-generator"
done
# Its mount namespace takes a twentieth of a host's start.
printf '[Service]\n%s\n' PrivateTmp=no ProtectControlGroups=no ProtectHome=no ProtectHostname=no ProtectKernelLogs=no \
    ProtectKernelModules=no ProtectSystem=no ReadWritePaths= ProtectClock=no > \
    "$root/etc/systemd/system/systemd-logind.service.d/rig.conf"
chroot "$root" systemctl --quiet set-default multi-user.target
chroot "$root" systemctl --quiet enable ssh.service irqbalance.service
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\nRuntimeMaxUse=8M\nForwardToSyslog=no\n' > "$root/etc/systemd/journald.conf.d/rig.conf"
: > "$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"
# Nothing is left to be brought up to date at the first start.
touch -r "$root/usr" "$root/etc/.updated" "$root/var/.updated"
