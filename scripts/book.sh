#!/usr/bin/env bash
# Renders the book in `docs/` to `book/`. mdBook comes from crates.io, to `target/mdbook`, unless it is on the PATH.
# `scripts/book.sh serve` shows it on a port of this machine and renders again when a page changes.
set -euo pipefail
cd "$(dirname "$0")/.."
VERSION=0.5.4
tool="$(command -v mdbook || true)"
if [ -z "$tool" ]; then
  tool=target/mdbook/bin/mdbook
  if ! [ -x "$tool" ]; then
    cargo install --locked --root target/mdbook "mdbook@$VERSION"
  fi
fi
"$tool" "${1:-build}"
