#!/bin/bash
# Unpacks Debian's adb, without installing it: adb.sh DIR makes DIR/adb.
set -euo pipefail
mkdir -p "$1"; dir=$(cd "$1" && pwd)
[ -x "$dir/adb" ] && exit
mkdir -p "$dir/debs"
(cd "$dir/debs" && apt-get download -q adb android-libbase android-libboringssl android-libcutils android-liblog libusb-1.0-0 libudev1 >/dev/null 2>&1)
for deb in "$dir"/debs/*.deb; do dpkg -x "$deb" "$dir/root"; done
libraries=$(find "$dir/root" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)
cat > "$dir/adb" <<A
#!/bin/bash
LD_LIBRARY_PATH=$libraries exec $(find "$dir/root" -path '*platform-tools/adb' -type f | head -1) "\$@"
A
chmod +x "$dir/adb"; "$dir/adb" version
