#!/bin/sh
# Installs llmexport from its releases: downloads the archive for this machine, compares it with the published SHA-256, and puts
# the program, its manual pages and its completions below a prefix.
#
#   curl -fsSL https://github.com/llmexport/llmexport/releases/latest/download/install.sh | sh
#   sh install.sh --prefix /usr/local --version 0.1.0
#
# LLMEXPORT_RELEASES is the address of the releases, for mirrors.
set -eu

main() {
	releases=${LLMEXPORT_RELEASES:-https://github.com/llmexport/llmexport/releases}
	prefix=${HOME:-}/.local
	version=
	key=
	while [ $# -gt 0 ]; do
		case $1 in
		--prefix | --version | --key)
			[ $# -ge 2 ] || fail "$1 needs a value"
			case $1 in
			--prefix) prefix=$2 ;;
			--version) version=${2#v} ;;
			--key) key=$2 ;;
			esac
			shift 2
			;;
		-h | --help)
			usage
			exit 0
			;;
		*)
			usage >&2
			fail "unknown option $1"
			;;
		esac
	done
	[ "$prefix" != /.local ] || fail "HOME is not set: name a directory with --prefix"

	platform=$(platform)
	archive=llmexport-$platform.tar.gz
	if [ -n "$version" ]; then
		from=$releases/download/v$version
	else
		from=$releases/latest/download
	fi
	tmp=$(mktemp -d "${TMPDIR:-/tmp}/llmexport.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM

	say "downloading $from/$archive"
	fetch "$from/$archive" "$tmp/$archive" || fail "$from/$archive cannot be downloaded"
	fetch "$from/SHA256SUMS" "$tmp/SHA256SUMS" || fail "$from/SHA256SUMS cannot be downloaded"
	check_signature
	check_sum

	mkdir "$tmp/files"
	tar -xzf "$tmp/$archive" -C "$tmp/files" || fail "$archive cannot be unpacked"
	[ -x "$tmp/files/llmexport" ] || fail "$archive does not contain the program"
	# What runs here is what gets installed.
	"$tmp/files/llmexport" --version >"$tmp/version" || fail "the program does not run on this machine"
	put "$tmp/files/llmexport" "$prefix/bin/llmexport" 755
	(cd "$tmp/files/share" && find . -type f) >"$tmp/share"
	while read -r file; do
		put "$tmp/files/share/$file" "$prefix/share/$file" 644
	done <"$tmp/share"
	say "installed $(head -n 1 "$tmp/version") as $prefix/bin/llmexport"
	advise
}

usage() {
	cat <<-'END'
		usage: install.sh [--prefix DIR] [--version VERSION] [--key FILE]

		  --prefix DIR       install below DIR: bin/llmexport and share/; ~/.local if absent
		  --version VERSION  install this release, such as 0.1.0; the latest if absent
		  --key FILE         demand a signature by this public key; needs llmexport-sign

		Where cosign is installed, the signature of the release is checked without a key.
	END
}

say() { printf 'install.sh: %s\n' "$*" >&2; }

fail() {
	say "$*"
	exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# platform prints the system and the architecture as the names of archives have them.
platform() {
	case $(uname -s) in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	MINGW* | MSYS* | CYGWIN*) fail "on Windows use Scoop, or unpack the zip of the release" ;;
	*) fail "there is no release for $(uname -s); build the program with Go" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "there is no release for $(uname -m); build the program with Go" ;;
	esac
	# A shell that Rosetta translates hides the real processor.
	if [ "$os $arch" = "darwin amd64" ] && [ "$(sysctl -n sysctl.proc_translated 2>/dev/null || true)" = 1 ]; then
		arch=arm64
	fi
	printf '%s-%s\n' "$os" "$arch"
}

# fetch downloads the address $1 into the file $2.
fetch() {
	if has curl; then
		curl -fsSL --retry 3 -o "$2" "$1"
	elif has wget; then
		wget -q -O "$2" "$1"
	else
		fail "curl or wget is needed"
	fi
}

# check_sum compares the archive with its line in SHA256SUMS.
check_sum() {
	want=$(awk -v name="$archive" '$2 == name || $2 == "*" name { print $1 }' "$tmp/SHA256SUMS")
	[ ${#want} -eq 64 ] || fail "SHA256SUMS has no digest of $archive"
	if has sha256sum; then
		got=$(sha256sum "$tmp/$archive")
	elif has shasum; then
		got=$(shasum -a 256 "$tmp/$archive")
	elif has openssl; then
		got=$(openssl dgst -sha256 -r "$tmp/$archive")
	else
		fail "sha256sum, shasum or openssl is needed"
	fi
	got=${got%% *}
	[ "$got" = "$want" ] || fail "$archive has the SHA-256 $got, not $want: it is damaged, or not of this release; nothing was installed"
}

# check_signature checks who made SHA256SUMS, as far as there is a tool for it.
check_signature() {
	bundle=$tmp/SHA256SUMS.sigstore.json
	if [ -n "$key" ]; then
		has llmexport-sign || fail "--key needs llmexport-sign"
	elif ! has cosign; then
		say "the signature is not checked, because cosign is not installed"
		return
	fi
	fetch "$from/SHA256SUMS.sigstore.json" "$bundle" || fail "the release is not signed"
	if [ -n "$key" ]; then
		llmexport-sign verify-file --key "$key" "$tmp/SHA256SUMS" >/dev/null || fail "the signature is not valid; nothing was installed"
	else
		cosign verify-blob "$tmp/SHA256SUMS" --bundle "$bundle" \
			--certificate-oidc-issuer https://token.actions.githubusercontent.com --certificate-identity-regexp \
			'^https://github\.com/llmexport/llmexport/\.github/workflows/release\.yml@refs/tags/v[0-9.]+$' >/dev/null ||
			fail "the signature is not valid; nothing was installed"
	fi
}

# put installs the file $1 as $2 with the mode $3, in one step, so that a running program is not disturbed.
put() {
	{ mkdir -p "${2%/*}" && cp "$1" "$2.new" && chmod "$3" "$2.new" && mv -f "$2.new" "$2"; } ||
		fail "$2 cannot be written: choose another directory with --prefix, or run this as root"
}

# advise tells what is left to do.
advise() {
	case ":$PATH:" in
	*":$prefix/bin:"*) ;;
	*)
		say "$prefix/bin is not in PATH; add this line to the start file of your shell, such as ~/.profile:"
		# shellcheck disable=SC2016 # for the file, not for now
		printf '  export PATH="%s:$PATH"\n' "$prefix/bin" >&2
		return
		;;
	esac
	found=$(command -v llmexport || true)
	[ "$found" = "$prefix/bin/llmexport" ] || say "another llmexport comes first in PATH: $found"
	say "next: llmexport doctor"
}

main "$@"
