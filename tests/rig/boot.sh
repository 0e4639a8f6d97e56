#!/bin/sh
# Runs one test host: "watch" on the machine starts it, and starts it again when it reboots; "enter" and "init" are the
# two steps by which the host's first process gets its namespaces and its file system, and becomes systemd.
#
# From the environment: ROOT its root folder, HOST, NETNS, CGROUP (two subfolders: watch, host), BINDS (lines of
# "source|target"), KEPT (paths that show through a bind), READONLY (1 or empty), DROPPED (capabilities), CONTROL (the fake tree's, or empty).
set -eu
REBOOTED=129 # the kernel ends the first process of a pid namespace with SIGHUP when it calls for a reboot

watch() {
    echo 0 > "$CGROUP/watch/cgroup.procs"
    while :; do
        status=0
        nsenter --net="/run/netns/$NETNS" unshare --mount --uts --ipc --pid --fork --kill-child "$0" enter || status=$?
        [ $status = $REBOOTED ] || exit $status
        [ -z "$CONTROL" ] || printf '{"do": "boot", "host": "%s"}' "$HOST" > "$CONTROL"
    done
}

enter() {
    echo 0 > "$CGROUP/host/cgroup.procs"
    exec unshare --cgroup "$0" init
}

init() {
    hostname "$HOST"
    mount --make-rprivate /
    device_files
    kernel_files
    mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs "$ROOT/run"
    # A host whose disk is read-only has no other place to write to.
    [ -n "$READONLY" ] || mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$ROOT/tmp"
    bind_trees
    cd "$ROOT"
    mkdir run/.old
    pivot_root . run/.old
    umount -l /run/.old
    rmdir /run/.old
    exec env -i container=gpuctl-rig PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
        setpriv "--bounding-set=$DROPPED" /lib/systemd/systemd
}

kernel_files() {
    mount -t proc -o nosuid,nodev,noexec proc "$ROOT/proc"
    mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$ROOT/sys"
    mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$ROOT/sys/fs/cgroup"
    # A second, unguarded view, taken away again before the host starts.
    mount --bind "$ROOT/proc" "$ROOT/mnt"
    for path in sys irq bus fs; do
        read_only "$ROOT/proc/$path"
    done
    mount --bind "$ROOT/mnt/sys/net" "$ROOT/proc/sys/net"
    for path in sysrq-trigger kmsg kcore timer_list keys; do
        [ ! -e "$ROOT/proc/$path" ] || null_device "$ROOT/proc/$path"
    done
}

read_only() {
    mount --bind "$1" "$1"
    mount -o remount,bind,ro "$1"
}

# Covers a file with a null device that only this host has. The machine's own /dev/null would be the same file to both:
# its owner and mode follow what systemd or a test sets in the host.
null_device() {
    mknod -m 666 "$ROOT/dev/cover" c 1 3
    mount --bind "$ROOT/dev/cover" "$1"
    rm "$ROOT/dev/cover"
}

device_files() {
    mount -t tmpfs -o nosuid,mode=755,size=64k,nr_inodes=512 tmpfs "$ROOT/dev"
    # systemd takes the console's owner and mode for its own: a node for it alone, which swallows what it prints.
    for device in console:1:3 null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
        IFS=: read -r name major minor <<END
$device
END
        mknod -m 666 "$ROOT/dev/$name" c "$major" "$minor"
    done
    mkdir "$ROOT/dev/pts" "$ROOT/dev/shm" "$ROOT/dev/mqueue"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$ROOT/dev/pts"
    mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$ROOT/dev/shm"
    mount -t mqueue mqueue "$ROOT/dev/mqueue"
    ln -s pts/ptmx "$ROOT/dev/ptmx"
    ln -s /proc/self/fd "$ROOT/dev/fd"
    for stream in 0:stdin 1:stdout 2:stderr; do
        ln -s "/proc/self/fd/${stream%:*}" "$ROOT/dev/${stream#*:}"
    done
}

bind_trees() {
    printf '%s\n' "$BINDS" | while IFS='|' read -r source target; do
        [ -n "$source" ] || continue
        mount --rbind "$source" "$ROOT$target"
        [ -z "$READONLY" ] || mount -o remount,bind,ro "$ROOT$target"
    done
    for path in $KEPT; do
        [ ! -e "$ROOT/mnt/${path#/proc/}" ] || mount --bind "$ROOT/mnt/${path#/proc/}" "$ROOT$path"
    done
    umount "$ROOT/mnt"
}

"$1"
