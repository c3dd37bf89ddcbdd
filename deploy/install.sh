#!/bin/sh
# Installs acp-gateway @VERSION@ for Linux on x86_64 and aarch64. It needs tar, sha256sum, and curl or wget.
#
#   sh install.sh              installs the program, its manual pages and its completions
#   sh install.sh --remove     removes these files; the data stays
#
# Variables:
#   PREFIX                 where to install; default: /usr/local as root, else ~/.local
#   ACP_GATEWAY_RELEASES   the URL of the folder with the files of this release; default: @RELEASES@
set -eu

# The shell reads the whole script before it runs, so that an incomplete download changes nothing.
main() {
  version=@VERSION@
  releases=${ACP_GATEWAY_RELEASES:-@RELEASES@}
  if [ "$(id -u)" = 0 ]; then prefix=${PREFIX:-/usr/local}; else prefix=${PREFIX:-$HOME/.local}; fi
  case "$*" in
    '') install_files ;;
    --remove) remove_files ;;
    *) fail "unknown arguments: $* (the only one is --remove)" ;;
  esac
}

fail() {
  printf 'install.sh: %s\n' "$1" >&2
  exit 1
}

# download NAME: gets a file of the release.
download() {
  if command -v curl >/dev/null; then
    curl -fsSL --retry 3 -o "$scratch/$1" "$releases/$1" || fail "could not download $releases/$1"
  elif command -v wget >/dev/null; then
    wget -q -O "$scratch/$1" "$releases/$1" || fail "could not download $releases/$1"
  else
    fail 'curl or wget is missing'
  fi
}

install_files() {
  [ "$(uname -s)" = Linux ] || fail "there is no build for $(uname -s)"
  case $(uname -m) in
    x86_64 | aarch64) ;;
    *) fail "there is no build for $(uname -m)" ;;
  esac
  name=acp-gateway-$version-$(uname -m)-unknown-linux-musl
  umask 022
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  trap 'exit 1' HUP INT TERM
  download SHA256SUMS
  download "$name.tar.gz"
  sum=$(sed -n "s/^\([0-9a-f]\{64\}\)  $name\.tar\.gz\$/\1/p" "$scratch/SHA256SUMS")
  [ -n "$sum" ] || fail "SHA256SUMS has no line for $name.tar.gz"
  printf '%s  %s\n' "$sum" "$scratch/$name.tar.gz" | sha256sum -c - >/dev/null 2>&1 || fail "the checksum of $name.tar.gz is wrong: nothing was installed"
  tar -xzf "$scratch/$name.tar.gz" -C "$scratch"
  (cd "$scratch/$name" && find bin share -type f) | while read -r file; do
    mkdir -p "$prefix/${file%/*}"
    cp "$scratch/$name/$file" "$prefix/$file.new"
    # A running gateway keeps its file, which cannot be overwritten.
    mv -f "$prefix/$file.new" "$prefix/$file"
  done
  printf 'installed acp-gateway %s in %s\n' "$version" "$prefix"
  case :$PATH: in
    *:"$prefix/bin":*) printf 'start it with: acp-gateway\n' ;;
    *) printf 'start it with: %s/bin/acp-gateway\n' "$prefix" ;;
  esac
}

remove_files() {
  rm -f "$prefix/bin/acp-gateway" "$prefix"/share/man/man1/acp-gateway.1.gz "$prefix"/share/man/man1/acp-gateway-*.1.gz \
    "$prefix/share/bash-completion/completions/acp-gateway" "$prefix/share/fish/vendor_completions.d/acp-gateway.fish" \
    "$prefix/share/zsh/site-functions/_acp-gateway"
  rm -rf "$prefix/share/doc/acp-gateway"
  printf 'removed acp-gateway from %s; the data folder stays\n' "$prefix"
}

main "$@"
