#!/bin/bash
# Stand-in for efa_installer.sh of aws-efa-installer: takes its options, installs the packages beside it with dpkg, skips
# those of which the host has a newer version and records them all the same, and prints what the real one prints.
# While /root/standin-efa-fails exists, it fails after its first package.
# shellcheck source=/dev/null
source ./env.sh
RECORD=/opt/amazon/efa_installed_packages
UNINSTALL=0 MINIMAL=0
for word in "$@"; do
	case $word in
	-u | --uninstall) UNINSTALL=1 ;;
	-m | --minimal) MINIMAL=1 ;;
	esac
done
echo "= Starting Amazon Elastic Fabric Adapter Installation Script ="
echo "= EFA Installer Version: ${EFA_INSTALLER_VERSION} ="
[ -e common.sh ] || { echo "Please cd into the installer directory." >&2; exit 1; }
fail() {
	echo "Error: Failed to install packages." >&2
	echo "Error: failed to install EFA packages, exiting" >&2
	exit 1
}
if [ $UNINSTALL -eq 1 ]; then
	[ -f $RECORD ] || { echo "Error: EFA is not installed, exiting." >&2; exit 1; }
	echo "== Uninstalling EFA packages =="
	mapfile -t names < <(grep -v '^#' $RECORD | tr -s ' ' '\n' | cut -d_ -f1 | grep .)
	dpkg --purge "${names[@]}" || exit 1
	rm $RECORD
	echo "EFA uninstall complete."
	exit 0
fi
names=()
echo "== Installing EFA packages =="
mapfile -t paths < <(tr -s ' ' '\n' <package_list.txt | grep .)
for path in "${paths[@]}"; do
	file=$(basename "$path" .deb) name=${path##*/} name=${name%%_*}
	case $MINIMAL$name in 1libfabric* | 1openmpi* | 1efa-profile*) continue ;; esac
	names+=("$file")
	version=$(cut -d_ -f2 <<<"$file")
	now=$(dpkg-query -W -f '${Version}' "$name" 2>/dev/null)
	if dpkg --compare-versions "$version" le "$now"; then
		echo "${name}_$now already installed"
		continue
	fi
	dpkg --install "$path" || fail
	[ -e /root/standin-efa-fails ] && fail
done
mkdir -p /opt/amazon
cat >$RECORD <<EOF
# EFA installer version: ${EFA_INSTALLER_VERSION}
# Debug packages installed: no
# Packages installed:
${names[*]}
EOF
echo "EFA installation complete."
